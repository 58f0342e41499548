-- The usual outbox table (preset outbox), with the columns that polling workers use.
CREATE TABLE outbox_events (
  id              BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  aggregate_type  VARCHAR(64)  NOT NULL,               -- order, payment, ...
  aggregate_id    BIGINT UNSIGNED NOT NULL,            -- the record key; CHAR(36), VARCHAR and BINARY(16) occur too
  event_type      VARCHAR(100) NOT NULL,               -- OrderCreated, ...
  payload         JSON         NOT NULL,
  status          ENUM('PENDING','PROCESSING','PUBLISHED','FAILED') NOT NULL DEFAULT 'PENDING',   -- for polling workers; the relay needs none of these
  attempts        INT UNSIGNED NOT NULL DEFAULT 0,
  locked_by       VARCHAR(128) NULL,
  locked_until    DATETIME(6)  NULL,
  last_error      TEXT         NULL,
  published_at    DATETIME(6)  NULL,
  idempotency_key VARCHAR(128) NOT NULL,               -- what consumers deduplicate by
  created_at      DATETIME(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at      DATETIME(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY uk_outbox_idempotency (idempotency_key),
  KEY ix_outbox_status (status, id)
) ENGINE=InnoDB;
