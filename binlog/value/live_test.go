package value_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/go-sql-driver/mysql"

	"outbox-relay/binlog/event"
	"outbox-relay/internal/sandbox"
)

// live is a connection to a real server, and its binlog. It is not database/sql, because that reads numbers into
// numbers and the text of the server is what counts here.
type live struct {
	conn     *client.Conn
	config   *mysql.Config
	database string
	version  string
}

func openLive(t *testing.T) *live { return openLiveOn(t, sandbox.SharedMySQL(t)) }

func openLiveOn(t *testing.T, m *sandbox.MySQL) *live {
	t.Helper()
	name := m.NewDatabase(t)
	config, err := mysql.ParseDSN(m.RootDSN(name))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := client.Connect(config.Addr, config.User, config.Passwd, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &live{conn: conn, config: config, database: name}
	l.exec(t, "SET NAMES utf8mb4", "SET time_zone='+00:00', sql_mode='', cte_max_recursion_depth=1000000")
	l.version = *l.query(t, "SELECT VERSION()")[0][0]
	return l
}

func (l *live) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := l.conn.Execute(s); err != nil {
			t.Fatalf("%.300s: %v", s, err)
		}
	}
}

// text is a value as the server prints it; nil is NULL.
type text *string

// query gives the rows in the text protocol.
func (l *live) query(t *testing.T, q string) [][]text {
	t.Helper()
	r, err := l.conn.Execute(q)
	if err != nil {
		t.Fatalf("%.300s: %v", q, err)
	}
	var out [][]text
	for _, data := range r.RowDatas {
		row := make([]text, len(r.Fields))
		rest := []byte(data)
		for i := range row {
			v, isNull, n, err := gomysql.LengthEncodedString(rest)
			if err != nil {
				t.Fatal(err)
			}
			if rest = rest[n:]; !isNull {
				s := string(v)
				row[i] = &s
			}
		}
		out = append(out, row)
	}
	return out
}

type position = gomysql.Position

func (l *live) position(t *testing.T) position {
	t.Helper()
	r, err := l.conn.Execute("SHOW BINARY LOG STATUS")
	if err != nil {
		r, err = l.conn.Execute("SHOW MASTER STATUS") // before 8.2
	}
	if err != nil {
		t.Fatal(err)
	}
	file, _ := r.GetString(0, 0)
	pos, _ := r.GetUint(0, 1)
	return position{Name: file, Pos: uint32(pos)}
}

var serverID atomic.Uint32

// events reads the binlog between two positions, in the form of the file. Other tests write to the same server:
// choose by database.
func (l *live) events(t *testing.T, from, to position) []ev {
	t.Helper()
	host, portText, err := net.SplitHostPort(l.config.Addr)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.ParseUint(portText, 10, 16)
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: uint32(time.Now().UnixNano())<<8 | serverID.Add(1)&0xff | 1<<31, Flavor: "mysql", Host: host, Port: uint16(port), User: l.config.User, Password: l.config.Passwd,
		RawModeEnabled: true, DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	stream, err := syncer.StartSync(from)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out []ev
	checksum, file := event.ChecksumNone, from.Name
	for {
		e, err := stream.GetEvent(ctx)
		if err != nil {
			t.Fatalf("%s %d: %v", file, len(out), err)
		}
		h, err := event.ParseHeader(e.RawData)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Type {
		case event.TypeFormatDescription:
			fd, err := event.ParseFormatDescription(e.RawData[event.HeaderSize : h.Size-event.ChecksumSize])
			if err != nil {
				t.Fatal(err)
			}
			checksum = fd.Checksum
			continue
		case event.TypeRotate:
			if r, ok := e.Event.(*replication.RotateEvent); ok {
				file = string(r.NextLogName)
			}
			continue
		case event.TypeHeartbeat:
			continue
		}
		body := e.RawData[event.HeaderSize:h.Size]
		if checksum == event.ChecksumCRC32 {
			body = body[:len(body)-event.ChecksumSize]
		}
		out = append(out, ev{h, body})
		if file > to.Name || file == to.Name && h.LogPos >= to.Pos {
			return out
		}
	}
}

// ev is an event without header and checksum bytes.
type ev struct {
	event.Header
	body []byte
}

// image is a row of a table.
type image struct {
	table *event.Table
	cells []event.Cell
}

// images decodes the inserted rows of a database, by table.
func images(t testing.TB, events []ev, database string) map[string][]image {
	t.Helper()
	tables, out := map[uint64]*event.Table{}, map[string][]image{}
	for _, e := range events {
		switch e.Type {
		case event.TypeTableMap:
			tm, err := event.ParseTableMap(e.body)
			if err != nil {
				t.Fatal(err)
			}
			tables[tm.ID] = tm
		case event.TypeWriteRows:
			h, err := event.ParseRowsHeader(e.Type, e.body)
			if err != nil {
				t.Fatal(err)
			}
			tm := tables[h.TableID]
			if tm == nil || tm.Schema != database {
				continue
			}
			var rows event.Rows
			if err := rows.Reset(tm, h, e.body); err != nil {
				t.Fatal(err)
			}
			for cells := make([]event.Cell, len(tm.Columns)); rows.Next(cells); {
				out[tm.Name] = append(out[tm.Name], image{tm, append([]event.Cell(nil), cells...)})
			}
			if rows.Err() != nil {
				t.Fatal(rows.Err())
			}
		}
	}
	return out
}

// columnList names all columns, invisible ones too.
func columnList(tm *event.Table) string {
	var names []string
	for _, c := range tm.Columns {
		names = append(names, "`"+c.Name+"`")
	}
	return strings.Join(names, ",")
}

// bitText turns the bytes that SELECT gives for a BIT into the number that the relay gives.
func bitText(s string) string {
	var u uint64
	for _, b := range []byte(s) {
		u = u<<8 | uint64(b)
	}
	return fmt.Sprint(u)
}
