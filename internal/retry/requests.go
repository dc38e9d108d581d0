// Operators' requests: replays go through a lane, requests about deferred rows wait until the lane
// has their ordering group at rest, the others are one statement.

package retry

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// How often operators' requests are read, and how many at once.
const (
	requestsEvery      = time.Second
	requestRows        = 100
	requestBytes       = 4 << 20
	maxWaitingRequests = 10_000
)

// inHand is a request that is being carried out.
type inHand struct {
	lane     int   // holds its ordering group; noLane: none does
	replayed int64 // the dead letter that is with a lane, or whose row is read; 0: it is no replay
}

const noLane = -1

// takeRequests reads operators' requests, and begins to carry them out.
func (f *feeder) takeRequests(ctx context.Context) (bool, error) {
	now := time.Now()
	if now.Before(f.requestsDueAt) {
		return false, nil
	}
	all, limit, damaged, err := f.readRequests(ctx)
	if err != nil {
		return false, err
	}
	f.requestsDueAt, f.moreRequests = now.Add(requestsEvery), len(all) == limit && damaged == ""
	for _, q := range all {
		switch _, taken := f.inHand[q.ID]; {
		case taken:
		case damaged == "":
			f.takeRequest(ctx, q)
		case q.Kind == store.Replay && q.Row != nil: // what cannot be read cannot be sent
			f.cannotReplay(q, sink.Undecodable, damaged)
		}
	}
	return true, nil
}

// readRequests lists operators' requests, at most limit. It lists the requests before a dead letter
// that cannot be read. When that dead letter is the first, its request comes alone, without what
// could not be read, and damaged says why.
func (f *feeder) readRequests(ctx context.Context) (all []store.Request, limit int, damaged string, err error) {
	// those of which no lane is known yet must not keep the others out
	limit = requestRows + min(f.waitingRequests, maxWaitingRequests)
	for f.waitingRequests = 0; ; limit /= 2 {
		all, err = f.cfg.Store.WaitingRequests(ctx, limit, requestBytes)
		switch {
		case !store.IsRefused(err):
			return all, limit, "", err
		case limit == 1:
			damaged = "the dead letter cannot be read: " + err.Error()
			all, err = f.cfg.Store.WaitingRequests(ctx, 1, 0)
			return all, limit, damaged, err
		}
	}
}

// takeRequest begins to carry out a request: it is answered at once, or given to a lane.
func (f *feeder) takeRequest(ctx context.Context, q store.Request) {
	switch {
	case q.Row == nil:
		f.queueAnswer(store.Answer{Request: q})
	case f.isReplaying(q.Row.N):
		// perhaps by a request that was cancelled: it counts when it is confirmed
	case q.Kind == store.Replay:
		f.replayDeadLetter(ctx, q)
	case q.Row.Dead:
		f.queueAnswer(store.Answer{Request: q})
	case q.Row.N > f.t.writer.acked.Load() && q.Row.Resend == 0:
		// the writer has not seen its commit yet
	default:
		place, known := f.cfg.Sink.Place(&q.Row.Event)
		if !known {
			f.waitingRequests++
			return
		}
		f.noteInHand(q.ID, place.Lane, 0)
		f.t.line.Found(place.Lane, []order.Found{{Group: q.Row.Group, ExchangeOrTopic: place.ExchangeOrTopic, Request: &q}})
	}
}

func (f *feeder) isReplaying(n int64) bool {
	for _, q := range f.inHand {
		if q.replayed == n {
			return true
		}
	}
	return false
}

// queueAnswer queues an answer that needs no lane.
func (f *feeder) queueAnswer(a store.Answer) {
	f.noteInHand(a.Request.ID, noLane, 0)
	f.answers.fresh = append(f.answers.fresh, a)
}

// noteInHand notes that a request is being carried out: a stop waits for it.
func (f *feeder) noteInHand(id int64, lane int, replayed int64) {
	f.requests.Add(1)
	f.inHand[id] = inHand{lane, replayed}
}

func (f *feeder) forgetRequest(id int64) {
	delete(f.inHand, id)
	f.requests.Add(-1)
}

// replayDeadLetter gives a dead letter to a lane. It goes before the rows of its ordering group,
// and does not change whether these wait. The request may send it to another destination. What
// cannot be sent is answered at once; what cannot be sent now is read again.
func (f *feeder) replayDeadLetter(ctx context.Context, q store.Request) {
	ev := q.Row.Event
	place, known := f.placeReplay(&ev, &q)
	switch {
	case len(ev.Raw) > 0:
		f.cannotReplay(q, sink.Undecodable, "it could not be decoded: insert a row that can be decoded, then discard it")
	case q.Begun != 0 && q.Begun != f.cfg.Epoch: // by an earlier leader, which has not answered it
		size := int64(0)
		if ev.LeftOut != nil {
			size = ev.LeftOut.Bytes
		}
		f.cannotReplay(q, sink.RowTooLarge, fmt.Sprintf("the relay ended, or lost its lead, while it replayed the row of %d bytes: give it about 3 times that in memory, then replay it again", size))
	case !known, ev.LeftOut != nil && f.readingFor != nil:
		f.waitingRequests++
	case f.budget.total.rows >= budgetRows:
	case ev.LeftOut != nil:
		f.readWhole(ctx, &q)
	default:
		f.sendReplay(q, ev, place)
	}
}

// placeReplay makes a replay of the event, and finds its place. It goes where the request says,
// else where it was going. For one that lacked values a template may have had none then.
func (f *feeder) placeReplay(ev *event.Event, q *store.Request) (sink.Place, bool) {
	var route event.Route
	if ev.Route != nil {
		route = *ev.Route
	}
	if q.Row.Event.LeftOut != nil {
		ev.Route = nil
		now := f.cfg.Sink.Route(ev)
		route = event.Route{Name: orElse(route.Name, now.Name), RoutingKey: orElse(route.RoutingKey, now.RoutingKey)}
	}
	ev.Route, ev.Replay = &event.Route{Name: orElse(q.Route.Name, route.Name), RoutingKey: orElse(q.Route.RoutingKey, route.RoutingKey)}, true
	return f.cfg.Sink.Place(ev)
}

// orElse is a, or b if there is no a.
func orElse(a, b []byte) []byte {
	if a == nil {
		return b
	}
	return a
}

// sendReplay gives a replay to its lane.
func (f *feeder) sendReplay(q store.Request, ev event.Event, place sink.Place) {
	e := &inflight.Event{
		Event: ev, Place: place, Size: ev.Size(), Row: q.Row, Request: &q, Attempts: q.Row.Attempts,
	}
	if group, ordered := f.cfg.Scope.Group(&ev, place.ExchangeOrTopic); ordered {
		e.Group = group
	}
	f.noteInHand(q.ID, noLane, q.Row.N)
	f.budget.add(place.Lane, e)
	f.t.line.Found(place.Lane, []order.Found{{Replay: e}})
}

// cannotReplay answers a replay that is not sent.
func (f *feeder) cannotReplay(q store.Request, reason sink.Reason, why string) {
	f.queueAnswer(store.Answer{Request: q, Outcome: sink.Outcome{State: sink.Rejected, Fault: sink.PermanentFault(reason, why)}})
}

// wholeRow is the whole row of an event that is to be replayed and whose deferred row lacks values,
// or the error of reading it.
type wholeRow struct {
	event *event.Event
	why   string // there is no event: the replay fails
	err   error  // it is read again
}

// readWhole begins to read the row of a replay. The row may be as large as any, which takes
// minutes: so it has a goroutine of its own, and there is one at a time.
//
// It may also need more memory than there is, and then this process is killed. So the request says
// that we have begun, committed before anything is read: the next leader answers it, instead of
// being killed in its turn.
func (f *feeder) readWhole(ctx context.Context, q *store.Request) {
	f.readingFor = q
	f.inHand[q.ID] = inHand{noLane, q.Row.N} // a stop does not wait for it
	ev := q.Row.Event
	f.readers.Go(func() {
		w := &wholeRow{err: f.cfg.Store.BeginReplay(ctx, q.ID)}
		if w.err == nil {
			w.event, w.why, w.err = f.cfg.ReadRow(ctx, &ev)
		}
		f.addAsk(func(a *laneAsks) { a.whole = w })
	})
}

// replayWhole goes on with a replay when its row was read. That may be one above the budget.
func (f *feeder) replayWhole(context.Context) (bool, error) {
	w, q := f.wholeRead, f.readingFor
	if w == nil {
		return false, nil
	}
	f.wholeRead, f.readingFor = nil, nil
	delete(f.inHand, q.ID)
	switch {
	case w.err != nil:
		return false, w.err
	case w.why != "":
		f.cannotReplay(*q, sink.RowTooLarge, w.why)
		return true, nil
	}
	ev := *w.event
	ev.Route = q.Row.Event.Route
	if was := q.Row.Event.Origin; was.Relation == 0 && was.Tx != 0 { // a copy that goes elsewhere
		ev.Origin = was
	}
	place, known := f.placeReplay(&ev, q) // what was left out may decide it
	if !known {
		f.waitingRequests++
		return true, nil
	}
	f.sendReplay(*q, ev, place)
	return true, nil
}

// takeAnswer takes a request back from a lane: a replay with its outcome, or one about a row whose
// ordering group is at rest. Returned: it is read again.
func (f *feeder) takeAnswer(r order.Result) {
	a := store.Answer{Request: *r.Request}
	if e := r.Event; e != nil {
		f.budget.remove(e.Place.Lane, e)
		if a.Outcome = (sink.Outcome{State: e.State, Fault: e.Refusal}); e.State == sink.Rejected {
			callHook(f.cfg.Hooks.Failed, 1)
		}
	}
	if r.Returned {
		f.forgetRequest(a.Request.ID)
		return
	}
	a.Request.Row.Event.Payload = nil // the answer needs it no more
	f.answers.fresh = append(f.answers.fresh, a)
}

// commitAnswers carries out the requests that are ready, and writes the results of replays. An
// answer that the database refuses is tried again, because what was replayed must not be sent
// again. If no lane has to do with it, its request is simply read again.
func (f *feeder) commitAnswers(ctx context.Context) (bool, error) {
	var done []bool
	part, did, err := f.answers.commit(ctx, &f.changePace, f.cfg.Hooks.Feeder, func(part []store.Answer) (err error) {
		done, err = f.cfg.Store.AnswerRequests(ctx, part)
		return err
	}, func(a store.Answer, err error) (again bool) {
		f.answerPace.failed(err)
		again = f.inHand[a.Request.ID] != inHand{lane: noLane}
		if !again {
			f.forgetRequest(a.Request.ID)
		}
		return again
	})
	if len(part) == 0 {
		return did, err
	}
	if len(f.answers.refused) == 0 {
		f.answerPace.succeeded()
	}
	for i := range part {
		f.finishAnswer(&part[i], done[i])
	}
	if f.moreRequests || len(f.inHand) == 0 {
		f.requestsDueAt = time.Now() // perhaps there are more
	}
	return true, nil
}

// finishAnswer tells lanes and hooks of an answer that is committed. done: the request was carried
// out.
func (f *feeder) finishAnswer(a *store.Answer, done bool) {
	lane := f.inHand[a.Request.ID].lane
	f.forgetRequest(a.Request.ID)
	if kind := a.Request.Kind; done && (kind == store.Redact || kind == store.Purge) && f.cfg.Hooks.Erased != nil {
		f.cfg.Hooks.Erased()
	}
	row := a.Request.Row
	if row == nil {
		return
	}
	if done {
		f.t.stats.rowsChanged.Store(true)
		if a.Request.Kind == store.DeadLetter {
			callHook(f.cfg.Hooks.Dead, 1)
			if f.cfg.Hooks.DeadLettered != nil {
				f.cfg.Hooks.DeadLettered(&row.Event, "", row.Attempts)
			}
		}
	}
	place, known := f.cfg.Sink.Place(&row.Event)
	switch {
	case lane != noLane:
		f.t.line.Finished(lane, []order.Result{{Request: &a.Request}})
	case known && f.cfg.Block && row.Ordered: // the dead letter may have blocked its ordering group
		f.t.line.Found(place.Lane, []order.Found{{Group: row.Group, ExchangeOrTopic: place.ExchangeOrTopic, Changed: true}})
	}
}
