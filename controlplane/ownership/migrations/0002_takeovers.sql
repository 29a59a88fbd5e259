-- Who was ever made a cell's primary, by the timeline that began with it: numbers never repeat. A row is there
-- before the cluster is promoted, so it may speak of a promotion that never came to be.
CREATE TABLE cell_promotions (
    cell        text NOT NULL,
    timeline    bigint NOT NULL CHECK (timeline > 0),
    epoch       bigint NOT NULL CHECK (epoch > 0),
    region      text NOT NULL,
    parent      bigint NOT NULL CHECK (parent >= 0 AND parent < timeline),
    fork_lsn    numeric(20) NOT NULL CHECK (fork_lsn >= 0),
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (cell, timeline)
);

-- What each region has, frozen, when a takeover asked. Written once.
CREATE TABLE cell_votes (
    cell    text NOT NULL,
    epoch   bigint NOT NULL CHECK (epoch > 0),
    region  text NOT NULL,
    place   text NOT NULL,
    cast_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (cell, epoch, region)
);
