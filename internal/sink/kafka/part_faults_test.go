package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// faults says what is wrong with the producer's part, by the tables at part and phase, after it was
// advanced as far as it can go now.
func (pr *producer) faults() string {
	p, t := &pr.part, &pr.part.trouble
	var all []string
	want := func(is bool, what string) {
		if !is {
			all = append(all, what)
		}
	}
	n := 0
	if pr.batch != nil {
		n = pr.batch.Count()
	}
	want(p.phase != phaseReady, "it is ready, and is not sent")
	want((p.phase == phaseDone) == (len(p.todo) == 0), "it is done with events, or is not without any")
	want((p.phase == phaseOut || p.phase == phaseWaiting) == (n > 0), "its batch does not fit its phase")
	want(n > 0 || pr.batch == nil && pr.heldRoom == 0 && pr.Bytes == nil, "without a batch it holds room, or bytes")
	want(n <= len(p.todo) && p.doubted <= len(p.todo) && p.suspects <= len(p.todo), "it counts more events than it has")
	want((p.maxRecords > 0) == (p.suspects > 0) && (p.maxRecords == 0 || n <= p.maxRecords), "its suspects do not fit the bound of its batch")
	want(p.phase == phaseOut || !pr.Tried || pr.Bytes != nil && pr.id != kafkaclient.None && p.doubted >= n, "a batch that was sent is not in doubt")
	want(p.phase != phaseOut || (p.queuedAt == nil) == (pr.id == kafkaclient.None), "it waits for an id that it has, or for none")
	want(p.phase != phaseOut || p.queuedAt == nil || pr.Bytes != nil, "a batch is out without bytes")

	want(t.since.IsZero() == (t.fault == nil), "its trouble has no fault, or its fault no beginning")
	want(!t.since.IsZero() || *t == trouble{renewals: t.renewals} && t.renewals < 2, "it has no trouble, and something is left of one")
	want(p.phase != phaseDone || *t == trouble{}, "it is done, and its trouble is not")
	want(t.since.IsZero() || !t.blamedSince.Before(t.since), "it is blamed for a time before its trouble")
	want(t.since.IsZero() || !pr.troubledSince.IsZero() && !pr.troubledSince.After(t.since), "its partition is in trouble since later, or never was")
	want(p.phase != phaseWaiting || t.fault != nil && !p.resendAt.IsZero(), "it waits without a fault")
	at, waits := p.wakeAt(), p.phase == phaseWaiting || p.phase == phaseCrowded
	want(at.IsZero() != waits && (!waits || !at.Before(time.Now())), "it waits, and nobody wakes it")
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("part of %s/%d: %s\n%+v\ntrouble %+v\nid %d, %d records, tried %t, room %d, in trouble since %s",
		pr.Topic, pr.Partition, strings.Join(all, "; "), *p, *t, pr.id, n, pr.Tried, pr.heldRoom, pr.troubledSince)
}

// checkParts checks the parts of a lane after it has advanced them, on its goroutine. What is out
// is with a worker, which sets Tried.
func (h *history) checkParts(parts []*producer) {
	for _, pr := range parts {
		if faults := pr.faults(); faults != "" {
			h.t.Error(faults)
			return
		}
	}
}

// Each illegal part is named, and printed.
func TestPartFaultsAreSeen(t *testing.T) {
	for want, spoil := range map[string]func(pr *producer){
		"is not sent":            func(pr *producer) { pr.part.phase = phaseReady },
		"is done with events":    func(pr *producer) { pr.part.phase = phaseDone },
		"does not fit its phase": func(pr *producer) { pr.part.phase = phaseCrowded },
		"more events than":       func(pr *producer) { pr.part.doubted = 3 },
		"the bound of its batch": func(pr *producer) { pr.part.suspects = 1 },
		"is not in doubt":        func(pr *producer) { pr.Tried, pr.part.phase = true, phaseWaiting },
		"an id that it has":      func(pr *producer) { pr.part.queuedAt = nil },
		"no beginning":           func(pr *producer) { pr.part.trouble.fault = &sink.Fault{} },
		"is left of one":         func(pr *producer) { pr.part.trouble.retries = 1 },
		"before its trouble":     func(pr *producer) { pr.part.trouble.since = time.Now() },
		"nobody wakes it":        func(pr *producer) { pr.part.phase = phaseWaiting },
	} {
		withPart(t, func(d *partRig) {
			d.begin(few(2)...)
			d.lane.sink.client.Control.Withdraw(&d.producer().ProducerBatch)
			d.answered(kafkaclient.Answer{Kind: kafkaclient.Identity, Producer: 1})
			if spoil(d.producer()); !strings.Contains(d.producer().faults(), want) {
				t.Errorf("%q is not in %q", want, d.producer().faults())
			}
		})
	}
}
