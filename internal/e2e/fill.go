package e2e

import (
	"context"
	"fmt"
)

// Fill writes so many rows into both tables, as fast as the server takes them: a third of each kind, over so many keys of each.
func (s *Site) Fill(ctx context.Context, rows, keys int) error {
	const most = 50_000 // of one statement
	for from := 0; from < rows; from += most {
		to := min(from+most, rows)
		for kind, where := range map[string]string{"shipment": "n % 3 = 2", "order": "n % 3 < 2"} {
			table, typ := "orders_outbox", "IF(n % 3 = 0, 'order', 'payment')"
			if kind == "shipment" {
				table, typ = "shipments_outbox", "'shipment'"
			}
			statement := fmt.Sprintf(`INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload, idempotency_key)
WITH RECURSIVE d AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM d WHERE i < 99), s AS (SELECT %d + a.i * 10000 + b.i * 100 + c.i AS n FROM d a, d b, d c WHERE a.i < 5)
SELECT %s, CONCAT('k', n %% %d), 'Filled', JSON_OBJECT('n', n, 'text', REPEAT('x', 100)), CONCAT('fill-', n) FROM s WHERE n < %d AND %s ORDER BY n`,
				table, from, typ, keys, to, where)
			if _, err := s.DB.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("filling %s: %w", table, err)
			}
		}
	}
	return nil
}
