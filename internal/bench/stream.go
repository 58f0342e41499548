package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// readCommand is the child of skip: it reads the binlog behind a GTID set until so many transactions were seen, in one of three ways.
//
//	count   counts packets: one look at the event type, nothing else
//	crc     count, and the checksum of each event
//	reader  the relay's reader, watching a table that the stream has no row of
//
// It prints the time from the first packet on, in seconds.
func readCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("read", flag.ContinueOnError)
	address := flags.String("mysql", "", "address of MySQL")
	start := flags.String("start", "", "GTID set to start behind")
	how := flags.String("how", "count", "count, crc or reader")
	dir := flags.String("dir", "", "folder for spool files")
	transactions := flags.Int("transactions", 0, "transactions to read")
	profile := flags.String("cpuprofile", "", "file for a CPU profile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	set, err := gtid.ParseSet(*start)
	if err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var took time.Duration
	switch *how {
	case "count", "crc":
		took, err = countPackets(ctx, *address, set, *transactions, *how == "crc")
	case "reader":
		took, err = readTransactions(ctx, *address, set, *transactions, *dir)
	default:
		err = fmt.Errorf("-how %s: want count, crc or reader", *how)
	}
	if err == nil {
		fmt.Fprintln(out, strconv.FormatFloat(took.Seconds(), 'f', 6, 64))
	}
	return err
}

// readTransactions reads with the relay's reader. Next returns when the server has nothing to send right now, or after thousands of transactions.
func readTransactions(ctx context.Context, address string, set *gtid.Set, transactions int, dir string) (time.Duration, error) {
	password := func(context.Context) (string, error) { return account, nil }
	r, err := binlog.New(binlog.Options{
		Name: "bench-read", Login: binlog.Login{User: account, Password: password, Program: "bench"}, Addresses: []string{address},
		Tables: []binlog.TableName{{Schema: database, Name: "outbox_events"}}, Start: set,
		Memory: 2 << 20, RowLimit: 16 << 20, SpoolDir: dir, SpoolLimit: 1 << 30,
	})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var start time.Time
	for seen := 0; seen < transactions; {
		tx, err := r.Next(ctx)
		if err != nil {
			return 0, err
		}
		if start.IsZero() {
			start = r.Status().Since
		}
		if tx.HasRows {
			return 0, errors.New("the stream has a row of the outbox table")
		}
		seen += tx.Transactions
	}
	return time.Since(start), nil
}

const (
	streamBuffer = 512 << 10 // as the relay's reader
	packetHead   = 5         // length u24, number u8, status u8
	eventHead    = 19
)

// countPackets asks for the same stream and reads it with as little work as possible.
func countPackets(ctx context.Context, address string, set *gtid.Set, transactions int, crc bool) (time.Duration, error) {
	conn, err := dump(ctx, address, set)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start := time.Now()
	b := bufio.NewReaderSize(conn, streamBuffer)
	for seen := 0; seen < transactions; {
		head, err := b.Peek(packetHead + eventHead)
		if err != nil {
			return 0, err
		}
		n := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
		if head[4] != 0 {
			return 0, fmt.Errorf("the server ended the stream with a packet of status %#x", head[4])
		}
		if t := event.Type(head[packetHead+4]); t == event.TypeXID || t == event.TypeTransactionPayload {
			seen++
		}
		if crc {
			packet, err := b.Peek(4 + n)
			if err != nil {
				return 0, err
			}
			if t := event.Type(head[packetHead+4]); t != event.TypeFormatDescription && !event.VerifyChecksum(packet[packetHead:]) {
				return 0, fmt.Errorf("checksum of %s", t)
			}
		}
		if _, err := b.Discard(4 + n); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// dump asks for the stream behind a set as the relay's reader does, and gives the connection that it comes on.
func dump(ctx context.Context, address string, set *gtid.Set) (net.Conn, error) {
	c, err := client.ConnectWithDialer(ctx, "tcp", address, account, account, "", (&net.Dialer{}).DialContext)
	if err != nil {
		return nil, err
	}
	if _, err := c.Execute("SET @source_binlog_checksum='CRC32', @source_heartbeat_period=5000000000"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	b := []byte{0, 0, 0, 0, 0x1e, 0, 0} // room for the packet's head, COM_BINLOG_DUMP_GTID, flags
	b = binary.LittleEndian.AppendUint32(b, 4_000_002)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, 4)
	gtids := set.Encode(nil)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(gtids)))
	c.ResetSequence()
	if err := c.WritePacket(append(b, gtids...)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c.Conn.Conn, nil
}
