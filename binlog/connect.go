package binlog

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"outbox-relay/binlog/gtid"
)

// ReplicaUUID derives the replica UUID of a relay from its name (a name-based UUID, version 5). The server ends an older dump with the
// same UUID when a new one starts, so the newest connection of a name always wins, also against a dead one of its own.
func ReplicaUUID(name string) gtid.UUID {
	sum := sha1.Sum([]byte("outbox-relay replica " + name))
	var u gtid.UUID
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return u
}

// serverID derives a server id from the relay's name, away from the small numbers that people choose.
func serverID(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32() | 1<<31
}

// connect makes a replication connection, trying the servers in turn until one works.
func (r *Reader) connect(ctx context.Context) error {
	if r.failures == 0 {
		r.tour.Restart()
	}
	for {
		if r.ahead != nil && r.failures >= aheadAttempts {
			return r.Status().LastError
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
		l := r.tour.Next(ctx)
		err := r.attempt(ctx, l)
		if err == nil {
			r.tour.Worked()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errNotAllowed) {
			r.failures = 0
			r.tour.Restart()
			continue
		}
		err = classify(err, l.At(), l.User)
		r.setStatus(func(s *Status) { s.failed(err) })
		if errors.Is(err, ErrFenced) {
			return err
		}
		var c *ConnectError
		if err := r.tour.Failed(err, lasting(err) || !r.everConnected && errors.As(err, &c) && c.Lasting()); err != nil {
			return err
		}
		if r.failures == 1 || r.failures%10 == 0 {
			r.log.Warn("source cannot be reached, trying again", "err", err, "attempts", r.failures)
		}
	}
}

// errNotAllowed ends an attempt to connect while Options.Allowed gives false.
var errNotAllowed = errors.New("a dump is not allowed now")

func (r *Reader) attempt(ctx context.Context, l Login) error {
	c, err := Dial(ctx, l)
	if err != nil {
		return err
	}
	if err := r.startDump(ctx, c, l); err != nil {
		c.Close()
		return err
	}
	r.conn, r.everConnected, r.settled, r.told, r.idle = c, true, false, false, Place{}
	r.pk = newPackets(c.Conn.Conn.Conn, r.bufferSize, r.beforeRead)
	r.lingered = 0
	r.pk.limit = min(firstLimit<<min(r.failures-1, 10), maxLimit)
	r.metrics.connects.Inc()
	r.metrics.connected.Set(1)
	r.setStatus(func(s *Status) {
		s.Connected, s.Searching, s.Address, s.Login, s.ServerUUID, s.Since = true, true, l.At(), l, r.server.UUID, time.Now()
	})
	if r.o.Primary {
		r.watch = watchRole(ctx, c, r.server.UUID)
	}
	if !r.server.namesColumns() && r.ahead == nil {
		r.lookupDue = true
		if !r.warned {
			r.warned = true
			r.log.Warn("the binlog names no columns (binlog_row_metadata=MINIMAL): they are read from information_schema, and an ALTER that cannot be followed halts; FULL is safer")
		}
	}
	r.log.Info("source connected", "address", l.At(), "version", r.server.Version, "server_uuid", r.server.UUID.String())
	return nil
}

// startDump checks the server against the position, sets the session up and asks for the stream.
func (r *Reader) startDump(ctx context.Context, c *Conn, l Login) error {
	s, err := c.Server(l.At())
	if err != nil {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	if r.o.Primary && s.ReadOnly {
		return &notPrimaryError{s.Address}
	}
	if a, b, found := r.watched.twins(); found && s.FoldCase {
		return &SourceError{
			Reason: ReasonTableNames, Hint: "write the table's name in one way in all rules",
			Detail: fmt.Sprintf("%s and %s are one table on the server at %s, which does not tell upper from lower case in names", a, b, s.Address),
		}
	}
	lost, gap, err := r.compare(ctx, c, s)
	if err != nil {
		return err
	}
	r.giveUp(s, lost, gap)
	if r.lacking, err = r.lookBehind(ctx, c, s); err != nil {
		return err
	}
	behind := r.seen
	if r.again = r.from != ""; r.again {
		if behind, err = r.behindFile(ctx, c, s, r.from); err != nil {
			return err
		}
		r.from, r.lacking = "", ""
	}
	if r.sample = r.sampleOn(s); r.sample.Micros != 0 && !r.again {
		behind = r.seen.Clone()
		behind.Remove(r.sample.Last)
	}
	if err := c.net.SetDeadline(time.Now().Add(defaultConnectTimeout)); err != nil {
		return err
	}
	if _, err := c.Execute(r.sessionVariables()); err != nil {
		return fmt.Errorf("setting up the dump session: %w", err)
	}
	// Asked again, right before the dump: connecting takes as long as a freeze of this process or of the server does.
	if !r.o.Allowed() {
		return errNotAllowed
	}
	c.ResetSequence()
	if err := c.WritePacket(append(make([]byte, 4), r.dumpCommand(behind)...)); err != nil {
		return fmt.Errorf("asking for the binlog: %w", err)
	}
	// From here on deadlines are the packet reader's.
	if err := c.net.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if r.server != nil && r.server.UUID != s.UUID {
		r.log.Info("source is another server now", "server_uuid", s.UUID.String(), "before", r.server.UUID.String())
	}
	r.server = s
	r.watched.fold, r.own.fold = s.FoldCase, s.FoldCase
	r.target = s.Executed
	if r.seen.ContainsSet(r.target) {
		r.target = nil
	}
	return nil
}

// sessionVariables sets both spellings: servers before 8.0.26 know only the second of each pair, and unknown user variables do no harm.
func (r *Reader) sessionVariables() string {
	period := r.o.Heartbeat.Nanoseconds()
	return fmt.Sprintf("SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32', @replica_uuid='%s', @slave_uuid='%s', "+
		"@source_heartbeat_period=%d, @master_heartbeat_period=%d, net_write_timeout=%d", r.replica, r.replica, period, period, netWriteTimeout)
}

// dumpCommand builds COM_BINLOG_DUMP_GTID: command u8, flags u16 (2: heartbeats with 64 bits of position), server id u32, file name length u32,
// position u64, set length u32, set.
// A set without tags is sent in the plain encoding, which every server knows.
func (r *Reader) dumpCommand(behind *gtid.Set) []byte {
	b := []byte{0x1e, 2, 0}
	b = binary.LittleEndian.AppendUint32(b, r.serverID)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, 4)
	set := behind.Encode(nil)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(set)))
	return append(b, set...)
}
