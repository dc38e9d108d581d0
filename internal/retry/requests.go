// Operators' requests: replays go through a lane, requests about deferred rows wait until the lane
// has their ordering group at rest, the others are one statement.

package retry

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay/inflight"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// How often operators' requests are read, and how many at once.
const (
	requestsEvery = time.Second
	requestRows   = 100
	requestBytes  = 4 << 20
	mostUnplaced  = 10_000
)

// takeRequests reads operators' requests.
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
	for _, a := range answers {
		if !f.isTaken(a.Request.ID) {
			f.answer(a)
		}
	}
	for _, q := range all {
		if !f.isTaken(q.ID) {
			f.takeRequest(ctx, q)
		}
	}
	f.moreAsked = len(all) == limit
	return true, nil
}

func (f *feeder) isTaken(id int64) bool {
	_, taken := f.inHand[id]
	return taken || f.reading != nil && f.reading.ID == id
}

// inHand is a request that is being carried out.
type inHand struct {
	lane     int   // holds its ordering group; noLane: none does
	replayed int64 // the dead letter that is with a lane; 0: it is no replay
}

const noLane = -1

// keep notes that a request is being carried out.
func (f *feeder) keep(id int64, lane int, replayed int64) {
	f.requests.Add(1)
	f.inHand[id] = inHand{lane, replayed}
}

// answer queues an answer that needs no lane.
func (f *feeder) answer(a store.Answer) {
	f.keep(a.Request.ID, noLane, 0)
	f.answers.fresh = append(f.answers.fresh, a)
}

// takeRequest begins to carry out a request.
func (f *feeder) takeRequest(ctx context.Context, q store.Request) {
	switch {
	case q.Row == nil, q.Row.Dead && q.Kind != store.Replay:
		// a replay that was cancelled still counts when it is confirmed
		if q.Row == nil || !f.isReplayed(q.Row.N) {
			f.answer(store.Answer{Request: q})
		}
	case q.Kind == store.Replay:
		if !f.isReplayed(q.Row.N) {
			f.replay(ctx, q)
		}
	// the writer has not seen its commit yet
	case q.Row.N > f.t.writer.acked.Load() && q.Row.Resend == 0:
	default:
		place, known := f.cfg.Sink.Place(&q.Row.Event)
		if !known {
			f.unplaced++
			return
		}
		f.keep(q.ID, place.Lane, 0)
		f.t.line.Found(place.Lane, []order.Found{{Group: q.Row.Group, ExchangeOrTopic: place.ExchangeOrTopic, Request: &q}})
	}
}

func (f *feeder) isReplayed(n int64) bool {
	if f.reading != nil && f.reading.Row.N == n {
		return true
	}
	for _, q := range f.inHand {
		if q.replayed == n {
			return true
		}
	}
	return false
}

// replay gives a dead letter to a lane. It goes before the rows of its ordering group, and does not
// change whether these wait. The request may send it to another destination. A dead letter that
// cannot be sent is answered at once; one that cannot be sent now is read again.
func (f *feeder) replay(ctx context.Context, q store.Request) {
	ev := q.Row.Event
	if len(ev.Raw) > 0 {
		f.cannotReplay(q, sink.Undecodable, "it could not be decoded: insert a row that can be decoded, then discard it")
		return
	}
	if why := f.begunBefore(&q); why != "" {
		f.cannotReplay(q, sink.RowTooLarge, why)
		return
	}
	place, known := f.placeReplay(&ev, &q)
	switch {
	case !known, ev.LeftOut != nil && f.reading != nil:
		f.unplaced++
	case f.budget.all.rows >= budgetRows:
	case ev.LeftOut != nil:
		f.readWhole(ctx, &q)
	default:
		f.sendReplay(q, ev, place)
	}
}

// replayWhole goes on with a replay when its row was read. That may be one above the budget.
func (f *feeder) replayWhole(context.Context) (bool, error) {
	w, q := f.whole, f.reading
	if w == nil {
		return false, nil
	}
	f.whole, f.reading = nil, nil
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
		f.unplaced++
		return true, nil
	}
	f.sendReplay(*q, ev, place)
	return true, nil
}

// sendReplay gives a replay to its lane.
func (f *feeder) sendReplay(q store.Request, ev event.Event, place sink.Place) {
	e := &inflight.Event{
		Event: ev, Place: place, Size: ev.Size(), Row: q.Row, Request: &q, Attempts: q.Row.Attempts,
	}
	if group, ordered := f.cfg.Scope.Group(&ev, place.ExchangeOrTopic); ordered {
		e.Group = group
	}
	f.keep(q.ID, noLane, q.Row.N)
	f.budget.add(place.Lane, e)
	f.t.line.Found(place.Lane, []order.Found{{Replay: e}})
}

// cannotReplay answers a replay that is not sent.
func (f *feeder) cannotReplay(q store.Request, reason sink.Reason, why string) {
	f.answer(store.Answer{Request: q, Outcome: sink.Outcome{State: sink.Rejected, Fault: sink.PermanentFault(reason, why)}})
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
		if route.Name == nil {
			route.Name = now.Name
		}
		if route.RoutingKey == nil {
			route.RoutingKey = now.RoutingKey
		}
	}
	if q.Route.Name != nil {
		route.Name = q.Route.Name
	}
	if q.Route.RoutingKey != nil {
		route.RoutingKey = q.Route.RoutingKey
	}
	ev.Route, ev.Replay = &route, true
	return f.cfg.Sink.Place(ev)
}

// takeAnswer takes a request back from a lane: a replay with its outcome, or one about a row whose
// ordering group is at rest. Returned: it is read again.
func (f *feeder) takeAnswer(r order.Result) {
	a := store.Answer{Request: *r.Request}
	if e := r.Event; e != nil {
		f.budget.remove(e.Place.Lane, e)
		if a.Outcome = (sink.Outcome{State: e.State, Fault: e.Refusal}); e.State == sink.Rejected {
			call(f.cfg.Hooks.Failed, 1)
		}
	}
	if r.Returned {
		f.letGo(a.Request.ID)
		return
	}
	a.Request.Row.Event.Payload = nil // the answer needs it no more
	f.answers.fresh = append(f.answers.fresh, a)
}

// letGo forgets a request.
func (f *feeder) letGo(id int64) {
	delete(f.inHand, id)
	f.requests.Add(-1)
}

// commitAnswers carries out the requests that are ready, and writes the results of replays.
func (f *feeder) commitAnswers(ctx context.Context) (bool, error) {
	part := f.answers.next()
	if len(part) == 0 {
		return false, nil
	}
	var done []bool
	err := f.pace.untilKnown(ctx, f.cfg.Hooks.Feeder, func() (err error) {
		done, err = f.cfg.Store.Answer(ctx, part)
		return err
	})
	switch {
	case err == nil:
		if len(f.answers.resting) == 0 {
			f.asking.succeeded()
		}
		for i := range part {
			f.answered(&part[i], done[i])
		}
		if f.moreAsked || len(f.inHand) == 0 {
			f.requestsAt = time.Now() // perhaps there are more
		}
	case store.IsRefused(err):
		f.refusedAnswers(part, err)
	default:
		return false, err
	}
	return true, nil
}

// refusedAnswers isolates the answer that the database refuses. It is tried again, because what was
// replayed must not be sent again. If no lane has to do with it, its request is simply read again.
func (f *feeder) refusedAnswers(part []store.Answer, err error) {
	if f.answers.halve(part) {
		return
	}
	f.asking.failed(err)
	if id := part[0].Request.ID; f.inHand[id] == (inHand{lane: noLane}) {
		f.letGo(id)
		return
	}
	f.answers.rest(part)
}

// answered does what follows from a committed answer. done: it took place.
func (f *feeder) answered(a *store.Answer, done bool) {
	lane := f.inHand[a.Request.ID].lane
	f.letGo(a.Request.ID)
	row := a.Request.Row
	if row == nil {
		return
	}
	if done {
		f.t.stats.moved.Store(true)
		if a.Request.Kind == store.DeadLetter {
			call(f.cfg.Hooks.Dead, 1)
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

// readRequests lists operators' requests, at most limit. It lists the requests before a dead letter
// that cannot be read. When that dead letter is the first, the request to replay it is answered: a
// dead letter that cannot be read cannot be sent.
func (f *feeder) readRequests(ctx context.Context) (all []store.Request, limit int, answers []store.Answer, err error) {
	// those of which no lane is known yet must not keep the others out
	limit = requestRows + min(f.unplaced, mostUnplaced)
	for f.unplaced = 0; ; limit /= 2 {
		all, err = f.cfg.Store.Requests(ctx, limit, requestBytes)
		if err == nil {
			return all, limit, nil, nil
		}
		if !store.IsRefused(err) {
			return nil, limit, nil, err
		}
		if limit == 1 {
			break
		}
	}
	words := "the dead letter cannot be read: " + err.Error()
	if all, err = f.cfg.Store.Requests(ctx, 1, 0); err != nil {
		return nil, limit, nil, err
	}
	for _, q := range all {
		if q.Kind == store.Replay && q.Row != nil {
			answers = append(answers, store.Answer{Request: q, Outcome: sink.Outcome{
				State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: sink.Undecodable, Text: words},
			}})
		}
	}
	return nil, limit, answers, nil
}
