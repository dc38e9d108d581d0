// A store in memory whose statements fail when the test says so.

package retry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

var errLost = errors.New("connection lost")

// faultyStore is a store in memory whose statements take a while, fail, or succeed without an
// answer, when the test says so.
type faultyStore struct {
	*memorytest.Store
	mu    sync.Mutex
	calls []string
	// fault is asked at each call: an error, and whether the statement is carried out all the same.
	fault  func(call string) (err error, done bool)
	bad    map[string]bool // ids of rows that are refused
	named  bool            // a Refused names its row
	torn   map[string]bool // ids of rows that cannot be read
	defers [][]int64       // numbers of the rows of each Defer
}

func (s *faultyStore) call(what string, do func() error) error {
	time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's time, not ours
	s.mu.Lock()
	s.calls = append(s.calls, what)
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err, done := fault(what); err != nil {
			if done {
				if err := do(); err != nil {
					return err
				}
			}
			return err
		}
	}
	return do()
}

func (s *faultyStore) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// fails has the calls that begin so fail with that error; done: they are carried out all the same.
func (s *faultyStore) fails(prefix string, err error, done bool) {
	s.set(func() {
		s.fault = func(call string) (error, bool) {
			if strings.HasPrefix(call, prefix) {
				return err, done
			}
			return nil, false
		}
	})
}

// accept ends all faults of the database.
func (s *faultyStore) accept() { s.set(func() { s.fault = nil }) }

// count is how many calls began so.
func (s *faultyStore) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// done takes the calls made since the last time that began so.
func (s *faultyStore) done(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []string
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			calls = append(calls, c)
		}
	}
	s.calls = nil
	return strings.Join(calls, ", ")
}

func (s *faultyStore) Lease(ctx context.Context) (n int64, err error) {
	err = s.call("lease", func() (err error) { n, err = s.Store.Lease(ctx); return err })
	return n, err
}

func (s *faultyStore) Defer(ctx context.Context, rows []*store.Row) error {
	var ids []string
	var numbers []int64
	for _, r := range rows {
		ids = append(ids, string(r.Event.ID))
		numbers = append(numbers, r.N)
	}
	s.set(func() { s.defers = append(s.defers, numbers) })
	return s.call("defer "+strings.Join(ids, " "), func() error {
		for _, r := range rows {
			s.mu.Lock()
			bad, named := s.bad[string(r.Event.ID)], s.named
			s.mu.Unlock()
			if bad && named {
				return &store.Refused{Row: r, Err: errors.New("invalid byte")}
			} else if bad {
				return &store.Refused{Err: errors.New("invalid byte")}
			}
		}
		return s.Store.Defer(ctx, rows)
	})
}

func (s *faultyStore) Read(ctx context.Context, wants []store.Want, run int, size, acked int64) (runs []store.Run, err error) {
	err = s.call("read", func() (err error) { runs, err = s.Store.Read(ctx, wants, run, size, acked); return err })
	for _, r := range runs {
		for _, row := range r.Rows {
			if err == nil {
				err = s.read(row)
			}
		}
	}
	return runs, err
}

// read is what it meets to read a row.
func (s *faultyStore) read(row *store.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.torn[string(row.Event.ID)] {
		return fmt.Errorf("read: %w", &store.Refused{Err: errors.New("missing chunk number 0")})
	}
	return nil
}

func (s *faultyStore) Sweep(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	err = s.call("sweep", func() (err error) { groups, next, err = s.Store.Sweep(ctx, at, limit); return err })
	return groups, next, err
}

func (s *faultyStore) Skip(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	err = s.call("skip", func() (err error) { next, ok, err = s.Store.Skip(ctx, at); return err })
	return next, ok, err
}

func (s *faultyStore) Apply(ctx context.Context, results []store.Result) error {
	var what []string
	for _, r := range results {
		what = append(what, [...]string{"delivered", "backoff", "dead"}[r.Kind]+" "+string(r.Row.Event.ID))
	}
	return s.call("apply "+strings.Join(what, " "), func() error { return s.Store.Apply(ctx, results) })
}

func (s *faultyStore) Requests(ctx context.Context, limit int, size int64) (list []store.Request, err error) {
	err = s.call("requests", func() (err error) { list, err = s.Store.Requests(ctx, limit, size); return err })
	for _, q := range list {
		if err == nil && q.Row != nil && q.Row.Event.Payload != nil {
			err = s.read(q.Row)
		}
	}
	return list, err
}

func (s *faultyStore) BeginReplay(ctx context.Context, request int64) error {
	return s.call("begin", func() error { return s.Store.BeginReplay(ctx, request) })
}

func (s *faultyStore) Answer(ctx context.Context, answers []store.Answer) (done []bool, err error) {
	var what []string
	for _, a := range answers {
		what = append(what, string(a.Request.Kind))
	}
	err = s.call("answer "+strings.Join(what, " "), func() (err error) { done, err = s.Store.Answer(ctx, answers); return err })
	return done, err
}

func (s *faultyStore) Positions(ctx context.Context, from event.Position, limit int) (list []store.Owned, err error) {
	err = s.call("positions", func() (err error) { list, err = s.Store.Positions(ctx, from, limit); return err })
	return list, err
}
