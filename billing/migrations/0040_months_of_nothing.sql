-- name: book_unchanged
-- Price books are never changed, and withdrawn only before their day.
CREATE OR REPLACE FUNCTION billing_book_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'created_at' = to_jsonb(OLD) - 'created_at' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' OR OLD.effective_from <= (now() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'price book % is never changed', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;
