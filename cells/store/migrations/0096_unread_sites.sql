-- A takeover that an operator had decided without a site's vote: what only that site has, STRICT included, is not here.
-- Until it was handed in and judged, or was given up for good, nothing STRICT is confirmed in this cell.
CREATE TABLE unread_sites (
    region     text COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL,                   -- of the cell, since that takeover
    lost       text COLLATE "C" NOT NULL,         -- the region that owned the cell until then: it has all that others have
    since      timestamptz NOT NULL DEFAULT now(),
    read_at    timestamptz,                       -- all that it has is here
    settled_at timestamptz,                       -- nothing of it is waited for any more
    given_up   text,                              -- why an operator gave it up
    PRIMARY KEY (region, epoch)
);
