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

-- name: book_trigger
-- Holds everybody to it.
CREATE TRIGGER unchanged BEFORE UPDATE OR DELETE ON billing_charge_book
    FOR EACH ROW EXECUTE FUNCTION billing_book_unchanged();

-- name: contract_unchanged
-- Of a contract only the end may change.
CREATE OR REPLACE FUNCTION billing_contract_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'a contract is ended, not deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    IF to_jsonb(OLD) - 'effective_until' IS DISTINCT FROM to_jsonb(NEW) - 'effective_until' THEN
        RAISE EXCEPTION 'of a contract only the end may change' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- name: contract_trigger
-- Holds everybody to it.
CREATE TRIGGER unchanged BEFORE UPDATE OR DELETE ON billing_contract
    FOR EACH ROW EXECUTE FUNCTION billing_contract_unchanged();

-- name: invoice_unchanged
-- The table of `billing.charging.machine`, and: what is numbered keeps all but how it was settled
-- and credited.
CREATE OR REPLACE FUNCTION billing_invoice_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    may constant text[] := ARRAY[
        'DRAFT>DRAFT', 'DRAFT>FINAL', 'FINAL>PAID', 'UNCOLLECTIBLE>PAID', 'FINAL>VOID',
        'UNCOLLECTIBLE>VOID', 'FINAL>UNCOLLECTIBLE'
    ];
    free constant text[] := ARRAY['state', 'settled_at', 'credited'];
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.state = 'DRAFT' THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'invoice % is never deleted', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state <> NEW.state AND NOT (OLD.state || '>' || NEW.state) = ANY (may) THEN
        RAISE EXCEPTION 'an invoice that is % does not become %', OLD.state, NEW.state
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state <> 'DRAFT' AND to_jsonb(OLD) - free IS DISTINCT FROM to_jsonb(NEW) - free THEN
        RAISE EXCEPTION 'invoice % is never changed', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- name: invoice_trigger
-- Holds everybody to it.
CREATE TRIGGER unchanged BEFORE UPDATE OR DELETE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_unchanged();

-- name: line_unchanged
-- Lines come and go while their invoice is a draft.
CREATE OR REPLACE FUNCTION billing_line_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    concerned bigint;
BEGIN
    SELECT count(*) INTO concerned FROM billing_invoice
    WHERE state <> 'DRAFT' AND id IN (
        CASE WHEN TG_OP = 'INSERT' THEN NEW.invoice_id ELSE OLD.invoice_id END,
        CASE WHEN TG_OP = 'DELETE' THEN OLD.invoice_id ELSE NEW.invoice_id END
    );
    IF concerned > 0 THEN
        RAISE EXCEPTION 'lines of a final invoice never change' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- name: line_trigger
-- Holds everybody to it.
CREATE TRIGGER unchanged BEFORE INSERT OR UPDATE OR DELETE ON billing_invoice_line
    FOR EACH ROW EXECUTE FUNCTION billing_line_unchanged();

-- name: credit_note_trigger
-- Credit notes take inserts only.
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_credit_note
    FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_changes();
