package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// good is a history in which everything is right: 3 keys of 10 rows, one transaction each, one row
// delivered twice, one sent again by the broker, and after every fifth delivery a mark that reports
// exactly what has arrived.
func good() History {
	h := History{MaxDuplicates: 1, RolledBack: []string{"rolled-back"}}
	for i := range 30 {
		r := Row{ID: fmt.Sprintf("id%02d", i), Key: fmt.Sprintf("k%d", i%3), Seq: int64(i/3 + 1)}
		h.Committed = append(h.Committed, r)
		h.Deliveries = append(h.Deliveries, Delivery{
			ID: r.ID, Key: r.Key, Seq: r.Seq, Position: event.Position{Commit: pglogrepl.LSN(1000 + 10*i), Index: 0},
		})
		if i%5 == 4 {
			h.Marks = append(h.Marks, Mark{Flush: pglogrepl.LSN(1000 + 10*i + 5), After: len(h.Deliveries)})
		}
	}
	again, copied := h.Deliveries[28], h.Deliveries[20]
	again.Redelivered = true
	h.Deliveries = append(h.Deliveries, copied, again)
	return h
}

func TestCheckPassesAGoodHistory(t *testing.T) {
	v := Check(good())
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	if v.Committed != 30 || v.Delivered != 30 || v.Duplicates != 1 || v.Redelivered != 1 {
		t.Fatalf("verdict is %s", v)
	}
}

// An event that was given to the consumer, and had not arrived there when the broker was killed,
// comes behind later ones, whose reports are older than its arrival.
func TestCheckPassesWhatWasGivenOutBefore(t *testing.T) {
	h := good()
	h.CommitOrder = true
	late := h.Deliveries[11]
	late.Redelivered = true
	h.Deliveries = append(slices.Delete(h.Deliveries, 11, 12), late)
	shiftMarks(&h, 11, -1)
	if v := Check(h); !slices.Equal(v.OutOfOrder, []string{"id11"}) || !slices.Equal(v.FlushAheadOfDelivery, []string{"id11"}) {
		t.Fatalf("no broker was killed, and the verdict is %s", v)
	}
	h.BrokerKilled = true
	if v := Check(h); v.Err() != nil || v.Delivered != 30 {
		t.Fatalf("verdict is %s", v)
	}
}

func TestCheckTurnsRedForEachPlantedFault(t *testing.T) {
	id := func(ids ...string) []string { return ids }
	for name, fault := range map[string]struct {
		plant func(*History)
		found func(Verdict) []string
		want  []string
		says  string
	}{
		"one lost": {
			func(h *History) { h.Deliveries = slices.Delete(h.Deliveries, 7, 8); shiftMarks(h, 7, -1) },
			func(v Verdict) []string { return v.Lost }, id("id07"), "lost: 1 (id07)",
		},
		"all lost": {
			func(h *History) { h.Deliveries, h.Marks = nil, nil },
			func(v Verdict) []string { return v.Lost[:1] }, id("id00"), "lost: 30 (id00, ",
		},
		"rolled back, delivered twice": {
			func(h *History) {
				h.Deliveries = append(h.Deliveries, Delivery{ID: "rolled-back"}, Delivery{ID: "rolled-back"})
			},
			func(v Verdict) []string { return v.Phantom }, id("rolled-back"), "phantom (never committed): 1",
		},
		"unknown": {
			func(h *History) { h.Deliveries = append(h.Deliveries, Delivery{ID: "whose"}) },
			func(v Verdict) []string { return v.Phantom }, id("whose"), "(whose)",
		},
		"two of a key swapped": {
			func(h *History) {
				h.Deliveries[11], h.Deliveries[14] = h.Deliveries[14], h.Deliveries[11]
				h.Marks = nil
			},
			func(v Verdict) []string { return v.OutOfOrder }, id("id11"), "out of order: 1 (id11)",
		},
		"two keys swapped under commit order": {
			func(h *History) {
				h.CommitOrder = true
				h.Deliveries[11], h.Deliveries[12] = h.Deliveries[12], h.Deliveries[11]
			},
			func(v Verdict) []string { return v.OutOfOrder }, id("id11"), "out of order",
		},
		"a duplicate too many": {
			func(h *History) { h.Deliveries = append(h.Deliveries, h.Deliveries[3]) },
			func(v Verdict) []string { return nil }, nil, "duplicates: 2, at most 1",
		},
		"another number": {
			func(h *History) { h.Deliveries[5].Seq++ },
			func(v Verdict) []string { return v.Altered }, id("id05"), "altered",
		},
		"another key": {
			func(h *History) { h.Deliveries[5].Key = "k9" },
			func(v Verdict) []string { return v.Altered }, id("id05"), "altered",
		},
		"another position at the second delivery": {
			func(h *History) { h.Deliveries[30].Position.Index++ },
			func(v Verdict) []string { return v.Moved }, id("id20"), "position moved",
		},
		"positions against commit order": {
			func(h *History) {
				h.Marks = nil
				h.Deliveries[3].Position.Commit = 1
			},
			func(v Verdict) []string { return v.Moved }, id("id03"), "position moved",
		},
		"reported one event early": {
			func(h *History) { h.Marks[2].Flush += 10 },
			func(v Verdict) []string { return v.FlushAheadOfDelivery }, id("id15"), "reported before delivery: 1 (id15)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			fault.plant(&h)
			v := Check(h)
			if found := fault.found(v); !slices.Equal(found, fault.want) {
				t.Errorf("found %v, want %v", found, fault.want)
			}
			if err := v.Err(); err == nil || !strings.Contains(err.Error(), fault.says) || !strings.Contains(v.String(), fault.says) {
				t.Errorf("verdict says %s", v)
			}
		})
	}
}

// TestCheckOfPartitions is about Kafka, where arrival in different partitions has no order.
func TestCheckOfPartitions(t *testing.T) {
	log := kafkaserver.TopicPartition{Topic: "t", Partition: 1}
	lay := func(h *History, i int, from kafkaserver.TopicPartition, offset int64) {
		h.Deliveries[i].From, h.Deliveries[i].Offset = from, offset
	}
	history := func() History {
		h := good()
		h.Marks = nil
		for i := range h.Deliveries {
			lay(&h, i, log, int64(i))
		}
		return h
	}
	swapped := history()
	swapped.Deliveries[11], swapped.Deliveries[14] = swapped.Deliveries[14], swapped.Deliveries[11]
	if v := Check(swapped); !slices.Equal(v.OutOfOrder, []string{"id11"}) {
		t.Errorf("swapped in a partition: %s", v)
	}
	lay(&swapped, 14, kafkaserver.TopicPartition{Topic: "t", Partition: 2}, 0)
	if err := Check(swapped).Err(); err != nil {
		t.Errorf("of different partitions: %v", err)
	}
	commit := history()
	commit.CommitOrder = true
	commit.Deliveries[11], commit.Deliveries[12] = commit.Deliveries[12], commit.Deliveries[11]
	if v := Check(commit); !slices.Equal(v.OutOfOrder, []string{"id11"}) {
		t.Errorf("keys swapped in a partition under commit order: %s", v)
	}
	lay(&commit, 12, kafkaserver.TopicPartition{Topic: "t", Partition: 2}, 0)
	if err := Check(commit).Err(); err != nil {
		t.Errorf("of different partitions under commit order: %v", err)
	}

	marked := history()
	// The first ten were in the log and nothing had arrived yet.
	marked.Marks = []Mark{{Flush: 1000 + 10*10, After: 0, Ends: map[kafkaserver.TopicPartition]int64{log: 10}}}
	if err := Check(marked).Err(); err != nil {
		t.Errorf("a mark below the end: %v", err)
	}
	marked.Marks[0].Flush++
	if v := Check(marked); !slices.Equal(v.FlushAheadOfDelivery, []string{"id10"}) {
		t.Errorf("a mark that is one event early: %s", v)
	}
	marked.Marks[0].After = 11
	if err := Check(marked).Err(); err != nil {
		t.Errorf("a mark after the arrival: %v", err)
	}
}

func shiftMarks(h *History, from, by int) {
	for i := range h.Marks {
		if h.Marks[i].After > from {
			h.Marks[i].After += by
		}
	}
}

func TestCheckWithoutKeyOrder(t *testing.T) {
	h := good()
	h.NoKeyOrder, h.Marks = true, nil
	h.Deliveries[11], h.Deliveries[14] = h.Deliveries[14], h.Deliveries[11]
	if err := Check(h).Err(); err != nil {
		t.Fatal(err)
	}
}
