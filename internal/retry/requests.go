// Operators' requests: replays, and requests that need no broker.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// How often operators' requests are read, and how many at once.
const (
	requestsEvery = time.Second
	requestRows   = 100
	requestBytes  = 4 << 20
)

// takeRequests carries out operators' requests. A dead letter that is to be replayed goes to its
// lane; the other requests are one statement. (No statement of unknown outcome is pending when this
// is called. Otherwise a request could be carried out on a row that has moved to the other table.)
func (f *feeder) takeRequests(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.requestsAt) {
		return false, nil
	}
	all, limit, answers, err := f.readRequests(ctx)
	if err != nil {
		return false, err
	}
	f.requestsAt = now.Add(requestsEvery)
	var replays []*run
	for _, q := range all {
		switch {
		case f.replays[q.ID] != nil:
		case q.Row == nil:
			answers = append(answers, store.Answer{Request: q})
		case f.mustWait(q):
		case q.Kind == store.Replay:
			if r, a := f.replay(q); r != nil {
				replays = append(replays, r)
			} else if a != nil {
				answers = append(answers, *a)
			}
		default:
			answers = append(answers, store.Answer{Request: q})
		}
	}
	f.launch(replays)
	if len(answers) == 0 {
		return len(replays) > 0, nil
	}
	st := f.answering(answers)
	if done := st.done; len(answers) == limit {
		st.done = func() { f.requestsAt = time.Now(); done() } // perhaps there are more
	}
	return true, f.exec(ctx, st)
}

// mustWait reports whether a request must wait. A deferred row may be in flight, or the writer may
// not have seen its commit yet: if it left the table now, it would be delivered or written once
// more. A dead letter may be in flight for a replay that was cancelled meanwhile. That replay still
// counts when it is confirmed.
func (f *feeder) mustWait(q store.Request) bool {
	if q.Row.Dead {
		for _, r := range f.replays {
			if r.request.Row.N == q.Row.N {
				return true
			}
		}
		return false
	}
	if r := f.runs[q.Row.Group]; r != nil {
		r.requestWaits = true
		return true
	}
	return q.Row.N > f.s.writer.acked.Load()
}

// replay makes a run of a dead letter. The dead letter goes before the rows of its ordering group,
// and does not change whether these wait. The request may send it to another destination. replay
// returns an answer instead of a run when the dead letter cannot be sent, and neither when it
// cannot be sent now.
func (f *feeder) replay(q store.Request) (*run, *store.Answer) {
	ev := q.Row.Event
	ev.Replay = true
	route := event.Route{}
	if ev.Route != nil {
		route = *ev.Route
	}
	if q.Route.Name != nil {
		route.Name = q.Route.Name
	}
	if q.Route.RoutingKey != nil {
		route.RoutingKey = q.Route.RoutingKey
	}
	ev.Route = &route
	if len(ev.Raw) > 0 {
		return nil, &store.Answer{Request: q, Outcome: sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{
			Class: sink.Permanent, Reason: sink.Undecodable, Text: "it could not be decoded: insert a row that can be decoded, then discard it",
		}}}
	}
	at, ok := f.cfg.Sink.Place(&ev)
	if !ok || f.rows >= budgetRows {
		return nil, nil
	}
	r := &run{group: q.Row.Group, ordered: q.Row.Ordered, lane: at.Lane, exchangeOrTopic: at.ExchangeOrTopic, request: &q, bytes: int64(ev.Size())}
	r.rows = []*store.Row{q.Row}
	r.feds = []*relay.Fed{{Event: ev, Place: at, Group: f.s.line.Group(&ev, at.ExchangeOrTopic), Replay: true, Refusals: q.Row.Attempts}}
	f.replays[q.ID] = r
	f.reserve(r)
	return r, nil
}

// replayed handles the result of a replay.
func (f *feeder) replayed(r *run) {
	f.unreserve(r)
	out := r.feds[0].Outcome
	// the lane ends; the request still waits
	if out.State != sink.Confirmed && out.State != sink.Rejected {
		delete(f.replays, r.request.ID)
		f.outstanding.Add(-1)
		return
	}
	if out.State == sink.Rejected {
		f.isPaused(r.feds[0].Place, 0)
		call(f.cfg.Hooks.Failed, 1)
	}
	r.request.Row.Event.Payload = nil // the answer needs it no more
	f.answers = append(f.answers, store.Answer{Request: *r.request, Outcome: out})
}

// commitAnswers commits the results of replays.
func (f *feeder) commitAnswers(ctx context.Context) (bool, error) {
	var answers []store.Answer
	if n := len(f.split); n > 0 {
		answers, f.split = f.split[n-1], f.split[:n-1]
	} else if !time.Now().Before(f.answersAt) {
		answers, f.answers = f.answers, nil
	}
	if len(answers) == 0 {
		return false, nil
	}
	return true, f.exec(ctx, f.answering(answers))
}

// answering returns the statement for some answers.
func (f *feeder) answering(answers []store.Answer) *statement {
	var done []bool
	return &statement{
		do: func(ctx context.Context) (err error) {
			done, err = f.cfg.Store.Answer(ctx, answers)
			return err
		},
		done: func() {
			for i, a := range answers {
				if f.replays[a.Request.ID] != nil {
					delete(f.replays, a.Request.ID)
					f.outstanding.Add(-1)
					if len(f.replays) == 0 {
						f.requestsAt = time.Now() // perhaps there are more
					}
				}
				if done[i] {
					f.s.stats.answered(a)
					f.answered(a)
				}
			}
		},
		refused: func(err error) { f.refusedAnswers(answers, err) },
	}
}

// refusedAnswers splits answers whose statement was refused, and tries the parts. An answer that is
// refused alone is tried again. If it needs no broker, its request is simply read again. The answer
// of a replay is kept, because the dead letter must not be sent again.
func (f *feeder) refusedAnswers(answers []store.Answer, err error) {
	if half := len(answers) / 2; half > 0 {
		f.split = append(f.split, answers[half:], answers[:half])
		return
	}
	f.asked.failed(err)
	if a := answers[0]; f.replays[a.Request.ID] != nil {
		f.answers = append(f.answers, a)
		f.answersAt = time.Now().Add(maxPause)
	}
}

// answered notifies the lane of what a committed request has changed for the ordering group.
func (f *feeder) answered(a store.Answer) {
	row := a.Request.Row
	if row == nil {
		return
	}
	if a.Request.Kind == store.DeadLetter {
		call(f.cfg.Hooks.Dead, 1)
		if f.cfg.Hooks.DeadLettered != nil {
			f.cfg.Hooks.DeadLettered(&row.Event, "", row.Attempts)
		}
	}
	gone := false // it no longer blocks its ordering group
	switch a.Request.Kind {
	case store.Replay:
		gone = f.cfg.Block && a.Outcome.State == sink.Confirmed
	case store.Discard:
		gone = f.cfg.Block
	case store.DeadLetter:
		gone = !f.cfg.Block
	case store.Purge:
		gone = !row.Dead || f.cfg.Block && a.Request.Open
	case store.Retry:
		f.makeReady(row.Group, true)
		return
	case store.Redact:
		return
	}
	at, known := f.place(row)
	switch {
	case !row.Ordered:
	case !known: // the lane was known when the row was counted, so this cannot happen
		f.cfg.Log.Error("no lane for a row that was counted: its key stays blocked until the next start", f.cfg.about(&row.Event)...)
	case gone:
		f.s.line.Uncount(at.Lane, row.Group, at.ExchangeOrTopic)
		f.owed[row.Group] = owing{at.Lane, at.ExchangeOrTopic}
	case a.Request.Kind == store.DeadLetter: // it blocks its ordering group now
		f.s.line.NotNow(at.Lane, row.Group, at.ExchangeOrTopic)
	}
	f.makeReady(row.Group, false)
}
