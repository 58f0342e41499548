package sandbox_test

import (
	"testing"

	"outbox-relay/internal/sandbox"
)

func TestSharedServersAnswer(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.DB(t, m.NewDatabase(t))
	var format, metadata, gtid string
	if err := db.QueryRow("SELECT @@binlog_format, @@binlog_row_metadata, @@gtid_mode").Scan(&format, &metadata, &gtid); err != nil {
		t.Fatal(err)
	}
	if format != "ROW" || metadata != "FULL" || gtid != "ON" {
		t.Errorf("server has binlog_format=%s binlog_row_metadata=%s gtid_mode=%s, want ROW FULL ON", format, metadata, gtid)
	}
	k := sandbox.SharedKafka(t)
	k.NewTopic(t, 3, map[string]string{"max.message.bytes": "2000000"})
}
