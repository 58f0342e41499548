package relay_test

import (
	"context"
	"testing"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/relay"
)

// idleSink takes nothing and has nothing.
type idleSink struct{ relay.Sink }

func (idleSink) Flush() {}

func TestRoomIsSeenWhenAcknowledgementsRaceWithTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	room := relay.NewRoom(1, idleSink{})
	acks := make(chan uint64)
	defer close(acks)
	go func() { // ends with the test
		for seq := range acks {
			room.Acked([]uint64{seq})
		}
	}()
	for n := int64(1); n <= 200_000; n++ {
		seq, err := room.Begin(ctx, gtid.Range{UUID: gtid.UUID{1}, First: n, Last: n})
		if err != nil {
			t.Fatalf("nothing is in flight and transaction %d finds no room: %v", n, err)
		}
		acks <- seq
		room.Close(seq)
	}
}
