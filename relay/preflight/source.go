package preflight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
)

// source is the look at one server.
type source struct {
	section
	plan    *plan
	login   binlog.Login
	conn    *binlog.Conn
	server  *binlog.Server
	account string // 'user'@'host' as the server knows it
	log     []string
}

// recommendedRetention is how long binlogs should be kept: a relay that stands still over a weekend loses nothing.
const recommendedRetention = 3 * 24 * time.Hour

func (p *plan) source(ctx context.Context, address string) []Item {
	q := &source{section: section{area: "source " + address}, plan: p, login: p.Login}
	q.login.Address = address
	c, err := binlog.Dial(ctx, q.login)
	if err != nil {
		q.add(Failed, "login", "%v", err)
		q.add(Unknown, "settings", "not looked at, since there is no connection")
		return q.items
	}
	defer c.Close()
	q.conn = c
	if !q.known(ctx) {
		return q.items
	}
	q.privileges(ctx)
	q.settings(ctx)
	q.filters()
	q.retention()
	q.position(ctx)
	q.lock(ctx)
	q.tables(ctx)
	q.snapshot(ctx)
	return q.items
}

// ask runs one statement.
func (q *source) ask(ctx context.Context, statement string) ([][]string, error) {
	return q.conn.Rows(ctx, statementTimeout, statement)
}

// one asks for one value; empty where it cannot be had.
func (q *source) one(ctx context.Context, statement string) string {
	rows, err := q.ask(ctx, statement)
	if err != nil || len(rows) == 0 || len(rows[0]) == 0 {
		return ""
	}
	return rows[0][len(rows[0])-1]
}

// known asks what the server is; false means that nothing more can be asked.
func (q *source) known(ctx context.Context) bool {
	s, err := q.conn.Server(q.login.Address)
	var unfit *binlog.SourceError
	if errors.As(err, &unfit) {
		q.add(OK, "login", "user %q", q.login.User)
		q.add(Failed, "server", "%s", unfit.Detail).do(unfit.Hint)
		return false
	}
	if err != nil {
		q.add(OK, "login", "user %q", q.login.User)
		q.add(Failed, "server", "%v", err)
		return false
	}
	q.server = s
	q.account = "'" + q.login.User + "'@'%'"
	if user, host, ok := strings.Cut(q.one(ctx, "SELECT CURRENT_USER()"), "@"); ok {
		q.account = "'" + user + "'@'" + host + "'"
	}
	secure := "without TLS"
	if v := q.one(ctx, "SHOW SESSION STATUS LIKE 'Ssl_version'"); v != "" {
		secure = "with " + v
	}
	q.add(OK, "login", "%s %s", q.account, secure)
	q.add(OK, "server", "MySQL %s, %s, server_uuid %s", s.Version, s.VersionComment, s.UUID)
	return true
}

// privileges tries what needs them: a right can come from a role, a partial revoke can take it away, and the text of SHOW GRANTS tells neither
// surely.
func (q *source) privileges(ctx context.Context) {
	_, err := q.either(ctx, "SHOW REPLICAS", "SHOW SLAVE HOSTS")
	q.privilege("REPLICATION SLAVE", err, Failed, "the relay cannot read the binlog")
	rows, err := q.either(ctx, "SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
	if len(rows) > 0 {
		q.log = rows[0]
	}
	q.privilege("REPLICATION CLIENT", err, Warning, "how far a purge is and the filters of the binlog cannot be seen")
}

// either tries the words of today and then those of older servers.
func (q *source) either(ctx context.Context, today, before string) ([][]string, error) {
	rows, err := q.ask(ctx, today)
	var my *mysql.MyError
	if errors.As(err, &my) && my.Code == mysql.ER_PARSE_ERROR {
		return q.ask(ctx, before)
	}
	return rows, err
}

func (q *source) privilege(name string, err error, lacking State, effect string) {
	var my *mysql.MyError
	switch {
	case err == nil:
		q.add(OK, name, "granted")
	case errors.As(err, &my) && (my.Code == mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR || my.Code == mysql.ER_ACCESS_DENIED_ERROR || my.Code == mysql.ER_XAER_RMERR):
		q.add(lacking, name, "the user lacks this privilege: %s", effect).do("grant it", fmt.Sprintf("GRANT %s ON *.* TO %s;", name, q.account))
	default:
		q.add(Unknown, name, "it cannot be tried: %v", err)
	}
}

// settings compares the server's variables with what the relay needs.
func (q *source) settings(ctx context.Context) {
	s := q.server
	if s.LogBin {
		q.add(OK, "log_bin", "ON")
	} else {
		q.add(Failed, "log_bin", "OFF: the server writes no binlog").do("start it with --log-bin, or without --skip-log-bin")
	}
	q.setting("binlog_format", s.Format, "ROW", "without rows in the binlog there is nothing to publish")
	q.rowImage()
	q.rowMetadata()
	if s.GTIDMode == "ON" {
		q.add(OK, "gtid_mode", "ON")
	} else {
		q.add(Failed, "gtid_mode", "%s: without GTIDs there is no position that survives a failover", s.GTIDMode).do("switch it on, one step after the other, on every server of the topology",
			"SET PERSIST enforce_gtid_consistency = ON;", "SET PERSIST gtid_mode = OFF_PERMISSIVE;", "SET PERSIST gtid_mode = ON_PERMISSIVE;", "SET PERSIST gtid_mode = ON;")
	}
	if v := q.one(ctx, "SELECT @@global.enforce_gtid_consistency"); v != "ON" && v != "1" {
		q.add(Failed, "enforce_gtid_consistency", "%s: gtid_mode=ON needs it", v).do("set it", "SET PERSIST enforce_gtid_consistency = ON;")
	} else {
		q.add(OK, "enforce_gtid_consistency", "ON")
	}
	updates := q.one(ctx, "SHOW GLOBAL VARIABLES LIKE 'log_replica_updates'")
	if updates == "" {
		updates = q.one(ctx, "SHOW GLOBAL VARIABLES LIKE 'log_slave_updates'")
	}
	if updates == "OFF" {
		q.add(Warning, "log_replica_updates", "OFF: rows that come to this server by replication are not in its binlog").do("start it with --log-replica-updates")
	}
}

func (q *source) setting(name, got, want, effect string) {
	if strings.EqualFold(got, want) {
		q.add(OK, name, "%s", got)
		return
	}
	q.add(Failed, name, "%s: %s", got, effect).do("set it, and let sessions that are open connect again", fmt.Sprintf("SET PERSIST %s = '%s';", name, want))
}

func (q *source) rowImage() {
	if q.server.RowImage == "FULL" {
		q.add(OK, "binlog_row_image", "FULL")
		return
	}
	q.add(Warning, "binlog_row_image", "%s: a row lacks the columns that its INSERT leaves to a default, and a rule that needs one halts there", q.server.RowImage).
		do("set it, or have the INSERTs name every column that a rule uses", "SET PERSIST binlog_row_image = 'FULL';")
}

func (q *source) rowMetadata() {
	if q.server.RowMetadata == "FULL" {
		q.add(OK, "binlog_row_metadata", "FULL")
		return
	}
	q.add(Warning, "binlog_row_metadata", "%s: the binlog does not name the columns; the relay asks information_schema, and halts at rows from around an ALTER that it cannot follow", q.server.RowMetadata).
		do("set it, and let sessions that are open connect again; until then the user needs SELECT on the outbox tables", "SET PERSIST binlog_row_metadata = 'FULL';")
}

// filters looks for databases that the server leaves out of its binlog: columns 3 and 4 of its status.
func (q *source) filters() {
	if len(q.log) < 4 || q.log[2] == "" && q.log[3] == "" {
		return
	}
	listed := func(list, schema string) bool {
		for one := range strings.SplitSeq(list, ",") {
			if one == schema {
				return true
			}
		}
		return false
	}
	for schema := range q.plan.schemas() {
		if q.log[2] != "" && !listed(q.log[2], schema) || listed(q.log[3], schema) {
			q.add(Failed, "binlog filter", "the server leaves database %s out of its binlog (binlog-do-db, binlog-ignore-db)", schema).do("start it without these options")
		}
	}
}

// retention compares how long binlogs are kept with what is recommended and with the age of the checkpoint.
func (q *source) retention() {
	kept := time.Duration(q.server.ExpireSeconds) * time.Second
	const name = "binlog retention"
	seconds := strconv.Itoa(int(recommendedRetention.Seconds()))
	switch {
	case kept == 0:
		q.add(OK, name, "binlogs are not purged by age (binlog_expire_logs_seconds=0)")
	case kept < recommendedRetention:
		q.add(Warning, name, "%s: a relay that stands still for longer loses its place", span(kept)).
			do("keep them for three days or more", "SET PERSIST binlog_expire_logs_seconds = "+seconds+";")
	default:
		q.add(OK, name, "%s", span(kept))
	}
	if c := q.plan.stored; c != nil && kept > 0 {
		if age := q.plan.Now().Sub(c.Time); age > kept/2 {
			q.add(Warning, "checkpoint age", "the checkpoint is %s old and binlogs are kept for %s", span(age), span(kept)).do("run the relay soon, or keep binlogs for longer meanwhile")
		}
	}
}

// position compares the checkpoint, or the place to start, with what the server has.
func (q *source) position(ctx context.Context) {
	const name = "position"
	s := q.server
	if q.plan.stored == nil {
		if !q.plan.damaged {
			q.start(ctx)
		}
		return
	}
	set := q.plan.stored.GTIDSet
	missing, gap := gtid.Minus(set, s.Executed), binlog.PurgedGap(s, set)
	switch {
	case !missing.IsEmpty():
		q.add(Failed, name, "the server lacks %d transactions that the relay has read: %s", missing.Count(), shortened(missing)).
			do("it lost them in a failover or is the wrong server: point source.address at the right one, or remove the checkpoint and set source.start to what this server has")
	case gap != nil:
		q.add(Failed, name, "%s", gap.Detail).do(gap.Hint)
	default:
		behind := gtid.Minus(s.Executed, set).Count()
		q.add(OK, name, "%d transactions behind the server, all of them in its binlogs", behind)
		q.distance(ctx, behind)
	}
}

// distance looks at what is left before a purge takes the position of the checkpoint, where that is one of this server.
func (q *source) distance(ctx context.Context, behind uint64) {
	const name = "binlog distance"
	c := q.plan.stored
	if c.BinlogFile == "" || c.SourceUUID != q.server.UUID.String() {
		return
	}
	k, err := q.conn.Kept(ctx, q.login, c.BinlogFile, c.BinlogPosition)
	switch {
	case err != nil && behind > 0:
		q.add(Unknown, name, "%v", err)
	case err != nil: // the file of the last transaction may be gone where nothing came after it
	case behind > 0 && k.Oldest && k.Purged:
		q.add(Warning, name, "the position is in the oldest binlog that the server keeps, %s from its beginning: the next purge loses it", size(k.Before)).
			do("run the relay now, or keep binlogs for longer meanwhile", "SET GLOBAL binlog_expire_logs_seconds = "+strconv.Itoa(2*max(1, int(k.Retention.Seconds())))+";")
	default:
		q.add(OK, name, "%s of binlog before the position", size(k.Before))
	}
}

// start looks at source.start on this server, and at prepared XA branches, which lie before a start at the latest position.
func (q *source) start(ctx context.Context) {
	switch q.plan.Start {
	case "", "earliest":
		return
	case "latest", "snapshot":
		rows, err := q.ask(ctx, "XA RECOVER CONVERT XID")
		q.privilege("XA_RECOVER_ADMIN", err, Warning, "where XA transactions are used, a first start at latest or snapshot cannot see those that are prepared, and the relay halts at their XA COMMIT (source.on_unknown_xa)")
		if err == nil && len(rows) > 0 {
			q.add(Warning, "prepared XA", "%d XA branches are prepared: a run that starts now waits for them a little, and then halts at the XA COMMIT of one that is left (source.on_unknown_xa)", len(rows)).
				do("end those that nobody will end before the first start; this lists them", "XA RECOVER CONVERT XID;")
		}
		return
	}
	set, err := gtid.ParseSet(q.plan.Start)
	if err != nil {
		q.add(Failed, "source.start", "%v", err).do("write a GTID set, such as " + q.server.UUID.String() + ":1-100")
		return
	}
	if gap := gtid.Minus(q.server.Purged, set); !gap.IsEmpty() {
		q.add(Failed, "source.start", "the server has purged %d transactions that it lacks: %s", gap.Count(), shortened(gap)).do("set source.start to earliest, or add them to it to accept the gap")
		return
	}
	q.add(OK, "source.start", "all transactions behind it are in the binlogs")
}

// lock tells whether a relay of this name is active.
func (q *source) lock(ctx context.Context) {
	if holder := q.one(ctx, "SELECT IS_USED_LOCK("+binlog.Literal("outbox-relay/"+q.plan.Name)+")"); holder != "" {
		q.add(OK, "activity lock", "a relay called %s is active (connection %s): another one would stand by", q.plan.Name, holder)
	}
}

// shortened keeps the text of a set readable.
func shortened(s *gtid.Set) string {
	const most = 200
	text := s.String()
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
