CREATE DATABASE shop;
-- What the order service is about. The relay never looks at this table.
CREATE TABLE shop.orders (
  id       BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  customer VARCHAR(64) NOT NULL,
  cents    BIGINT NOT NULL,
  state    VARCHAR(16) NOT NULL
) ENGINE=InnoDB;
-- The outbox table, with the columns that relays by polling need too. outbox-relay needs only the first five.
CREATE TABLE shop.outbox_events (
  id              BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  aggregate_type  VARCHAR(64)  NOT NULL,
  aggregate_id    BIGINT UNSIGNED NOT NULL,
  event_type      VARCHAR(100) NOT NULL,
  payload         JSON         NOT NULL,
  status          ENUM('PENDING','PROCESSING','PUBLISHED','FAILED') NOT NULL DEFAULT 'PENDING',
  attempts        INT UNSIGNED NOT NULL DEFAULT 0,
  locked_by       VARCHAR(128) NULL,
  locked_until    DATETIME(6)  NULL,
  last_error      TEXT         NULL,
  published_at    DATETIME(6)  NULL,
  idempotency_key VARCHAR(128) NOT NULL,
  created_at      DATETIME(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at      DATETIME(6)  NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY uk_outbox_idempotency (idempotency_key),
  KEY ix_outbox_status (status, id)
) ENGINE=InnoDB;
