package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TestStories runs the stories of testdata. A command does one thing and waits until the line has
// come to rest; then what happened is printed: the calls that the lanes made, what the reader's
// call returned, the watermark if it moved.
//
//	line [ordering=key|pipelined] [lanes=1] [max_in_flight=N] [bytes=N] [start=LSN]
//	begin lsn=LSN xid=N · event id=ID index=N [key=K] [to=ROUTING_KEY] [size=N] [fault] [known] · cancel · commit end=LSN
//	keepalive pos=LSN · disconnect · metadata on|off
//	answer lane=N [err]        outcomes as "id: confirmed|unsent|unknown|refused|paused|transient|permanent", one a line: refused
//	                           accuses the pair, paused the exchange; the others are confirmed
//	commit-rows [n=N]          the retry table writes the first rows that are deferred, or all
//	pass 1s                    time passes
//	state
//
// A key's lane is its first letter, a = 0, modulo lanes; without a key it is the index. LSNs are
// hexadecimal.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if _, err := os.Stat(file); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := &story{}
				defer s.stop()
				datadriven.RunTest(t, file, s.command)
			})
		})
	}
}

type story struct {
	line   *Line
	sink   *scriptSink
	quit   context.CancelFunc
	ended  chan error
	out    strings.Builder
	last   event.Watermark
	paused string // what was paused when last printed
	shelf  *shelf
	commit pglogrepl.LSN
	cancel context.CancelFunc // of the reader's call that blocks
	called chan error
}

func (s *story) stop() {
	if s.line == nil {
		return
	}
	if s.cancel != nil {
		s.cancel()
		<-s.called
	}
	s.quit()
	<-s.ended
}

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "line":
		s.start(t, d)
	case "begin":
		s.commit = lsnArg(t, d, "lsn")
		err := s.line.Begin(s.commit, uint32(intArg(t, d, "xid", 1)))
		switch {
		case err != nil:
			fmt.Fprintln(&s.out, err)
		case s.line.state == skipping:
			fmt.Fprintln(&s.out, "all admitted")
		case s.line.current.next > 0:
			fmt.Fprintf(&s.out, "from %d\n", s.line.current.next)
		}
	case "event":
		s.event(t, d)
	case "cancel":
		s.cancel()
	case "commit":
		s.line.Commit(lsnArg(t, d, "end"))
		s.line.Wake(true)
	case "keepalive":
		s.line.Keepalive(lsnArg(t, d, "pos"))
	case "disconnect":
		s.line.Disconnected()
	case "metadata":
		s.sink.mu.Lock()
		s.sink.unknown = d.HasArg("off")
		s.sink.mu.Unlock()
		if !d.HasArg("off") {
			s.sink.changed <- struct{}{}
		}
	case "answer":
		s.answer(t, d)
	case "pass":
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(dur) //nolint:forbidigo // the bubble's time, not ours
	case "commit-rows":
		s.line.Committed(s.shelf.take(intArg(t, d, "n", 0)))
	case "state":
		s.state()
	default:
		d.Fatalf(t, "unknown command")
	}
	synctest.Wait()
	s.observe()
	return s.out.String()
}

func (s *story) start(t *testing.T, d *datadriven.TestData) {
	s.stop()
	cfg := Config{
		MaxInFlight:      intArg(t, d, "max_in_flight", 0),
		MaxInFlightBytes: int64(intArg(t, d, "bytes", 0)),
		Hooks: Hooks{
			Rejected: func(ev *event.Event, f *sink.Fault, attempt int) {
				fmt.Fprintf(&s.out, "%s is rejected (%s), attempt %d\n", ev.ID, f.Reason, attempt)
			},
			Failed:      func(n int) { fmt.Fprintf(&s.out, "no row is written of %d\n", n) },
			Unavailable: func(lane, _ int, err error) { fmt.Fprintf(&s.out, "lane %d: unavailable: %v\n", lane, err) },
		},
	}
	if d.HasArg("start") {
		cfg.Start = lsnArg(t, d, "start")
	}
	if a, ok := d.Arg("ordering"); ok {
		cfg.Ordering = map[string]Ordering{"key": Key, "pipelined": Pipelined}[a.SingleVal(t)]
	}
	s.sink, s.shelf = newScriptSink(intArg(t, d, "lanes", 1)), &shelf{known: map[event.Position]bool{}}
	cfg.Sink, cfg.RetryTable = s.sink, s.shelf
	s.line = New(cfg)
	s.line.laneOf(s.sink.lanes - 1) // all of them are asleep before the first event
	s.last, s.paused = s.line.Watermark(), ""
	ctx, cancel := context.WithCancel(context.Background())
	s.quit, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- s.line.Run(ctx) }()
}

func (s *story) event(t *testing.T, d *datadriven.TestData) {
	ev := event.Event{
		Position:   event.Position{Commit: s.commit, Index: uint32(intArg(t, d, "index", 0))},
		CommitTime: time.Now(),
	}
	var id string
	d.ScanArgs(t, "id", &id)
	ev.ID = []byte(id)
	ev.Hash = uint64(ev.Position.Index)
	if a, ok := d.Arg("key"); ok {
		key := a.SingleVal(t)
		ev.Key, ev.Ordered, ev.Hash = []byte(key), true, uint64(key[0]-'a')
	}
	if a, ok := d.Arg("to"); ok {
		ev.Type = []byte(a.SingleVal(t))
	}
	s.shelf.known[ev.Position] = d.HasArg("known")
	if d.HasArg("fault") {
		ev.Ordered, ev.Hash = false, uint64(ev.Position.Index)
		ev.Fault = errors.New("the id is NULL")
	}
	ev.Payload = make([]byte, max(0, intArg(t, d, "size", 0)-ev.Size()))
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.called = cancel, make(chan error, 1)
	go func() { s.called <- s.line.Event(ctx, &ev) }()
	synctest.Wait()
	if len(s.called) == 0 {
		fmt.Fprintln(&s.out, "the reader waits")
	}
}

func (s *story) answer(t *testing.T, d *datadriven.TestData) {
	lane := intArg(t, d, "lane", 0)
	if s.sink.waiting(lane) == nil {
		fmt.Fprintf(&s.out, "lane %d has no call\n", lane)
		return
	}
	outcomes := make(map[string]sink.Outcome)
	for line := range strings.Lines(d.Input) {
		id, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		o := sink.Outcome{State: map[string]sink.State{
			"confirmed": sink.Confirmed, "unsent": sink.Unsent, "unknown": sink.Unknown,
			"refused": sink.Rejected, "paused": sink.Rejected, "transient": sink.Rejected, "permanent": sink.Rejected,
		}[what]}
		if o.State == sink.Rejected {
			o.Fault = map[string]*sink.Fault{
				"refused":   {Reason: sink.Unroutable, Destination: "the pair"},
				"paused":    {Reason: sink.NoExchange, Destination: "the exchange", Whole: true},
				"transient": {Class: sink.Transient, Reason: sink.BrokerException},
				"permanent": {Class: sink.Permanent, Reason: sink.TooLarge},
			}[what]
		}
		outcomes[id] = o
	}
	var err error
	if d.HasArg("err") {
		err = errors.New("connection lost")
	}
	s.sink.reply(lane, err, outcomes)
}

func (s *story) state() {
	snap, mark := s.line.Snapshot(), s.line.Watermark()
	fmt.Fprintf(&s.out, "watermark %s own %s, %d events, %d bytes in the line, %d confirmed above the watermark\n",
		mark.LSN, mark.Own, snap.Events, snap.Bytes, snap.ConfirmedAbove)
	if snap.WaitingGroups > 0 {
		fmt.Fprintf(&s.out, "%d ordering groups wait\n", snap.WaitingGroups)
	}
}

// observe prints what happened since the last command.
func (s *story) observe() {
	if len(s.called) > 0 {
		if err := <-s.called; err != nil {
			fmt.Fprintf(&s.out, "event: %v\n", err)
		}
		s.cancel()
		s.cancel, s.called = nil, nil
	}
	var paused []string
	for _, g := range s.line.Snapshot().Paused {
		paused = append(paused, g.Destination)
	}
	if now := strings.Join(paused, ", "); now != s.paused {
		s.paused = now
		fmt.Fprintf(&s.out, "paused: %s\n", now)
	}
	for _, said := range slices.Sorted(slices.Values(s.shelf.news())) {
		fmt.Fprintln(&s.out, said)
	}
	for _, c := range s.sink.arrived() {
		fmt.Fprintf(&s.out, "lane %d publishes %s\n", c.lane, strings.Join(c.ids, " "))
	}
	if w := s.line.Watermark(); w != s.last {
		s.last = w
		fmt.Fprintf(&s.out, "watermark %s own %s\n", w.LSN, w.Own)
	}
}

func intArg(t *testing.T, d *datadriven.TestData, name string, def int) int {
	d.MaybeScanArgs(t, name, &def)
	return def
}

func lsnArg(t *testing.T, d *datadriven.TestData, name string) pglogrepl.LSN {
	var s string
	d.ScanArgs(t, name, &s)
	lsn, err := pglogrepl.ParseLSN("0/" + s)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}
