// The contest's drains: the same backlog waits in a slot of each side.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// drains is a backlog through both.
func (c *contest) drains(ctx context.Context, rowsPerTx int, must float64) ([]result, error) {
	l := runSpec{keys: keyset{count: 1000}, rowsPerTx: rowsPerTx, payload: contestPayload, ordering: c.at.ordering(), events: c.events}
	if rowsPerTx == 1 {
		l.events /= 2
	}
	if err := c.prime(ctx); err != nil {
		return nil, err
	}
	var first int64
	waiting := false // for the relay: Debezium has had them
	fill := func(ctx context.Context) (err error) {
		first, err = c.backlog(ctx, l)
		waiting = err == nil
		return err
	}
	ours := func(ctx context.Context) (outcome, error) {
		waiting = false
		return c.drain(ctx, c.ours, l, first)
	}
	if err := fill(ctx); err != nil {
		return nil, err
	}
	warm, err := ours(ctx)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	c.say("    relay, to warm the broker up: %s", warm)
	usual, err := c.drain(ctx, c.debezium(nil), l, first)
	if err != nil {
		return nil, fmt.Errorf("debezium: %w", err)
	}
	c.say("    Debezium, default: %s", usual)
	d, err := c.duel(ctx, func(ctx context.Context) (outcome, error) {
		if err := fill(ctx); err != nil {
			return outcome{}, err
		}
		return c.drain(ctx, c.debezium(tuned), l, first)
	}, ours)
	if err == nil && waiting {
		err = c.catchUp(ctx, c.ours)
	}
	if err != nil {
		return nil, err
	}
	d.usual = usual
	shape := map[bool]string{true: "100-row transactions", false: "single-row transactions"}[rowsPerTx > 1]
	name := fmt.Sprintf("%s, backlog of %s", c.at.name(), shape)
	rate := d.result(name+": events per second", outcome.getRate, perSecond, must, true)
	rate.note = fmt.Sprintf("%d events; %s", l.events, rate.note)
	cpu := d.result(name+": CPU per event, user and system, start included", outcome.getCPU, usedTime, 0.15, false)
	cpu.note = "from the first event on " + d.result("", outcome.getWarmCPU, usedTime, 0, false).beside() + "; " + cpu.note
	peak := d.result(name+": peak RSS", outcome.getPeak, mebibytes, 0.1, false)
	start := d.result(name+": start of the process to the first event", outcome.getStart, lapse, 0.1, false)
	rate.short = "backlog of " + shape
	if rowsPerTx > 1 {
		cpu.short, peak.short, start.short = "CPU time per event of it", "peak memory (RSS)", "start to the first event"
	}
	return []result{rate, cpu, peak, start}, nil
}

func (o outcome) getRate() float64  { return o.rate }
func (o outcome) getCPU() float64   { return o.cpu }
func (o outcome) getPeak() float64  { return o.peak }
func (o outcome) getStart() float64 { return o.start }

const contestPayload = 200

// backlog is fill with a checkpoint in front, so that none comes within, and another before the
// last transaction: a slot that has come to the end begins there the next time. Else the walsender
// would first decode this backlog again, and that time, the same for both sides, would count as the
// start of the process.
func (c *contest) backlog(ctx context.Context, l runSpec) (first int64, err error) {
	if err := execSQL(ctx, c.db, "CHECKPOINT"); err != nil {
		return 0, err
	}
	most := l.events - l.rowsPerTx
	first, err = c.fillWith(ctx, l, func(first int64) string {
		return fmt.Sprintf("CALL fill(%d, %d, %d, %d)", first, most, l.rowsPerTx, l.bytes())
	})
	if err != nil {
		return 0, err
	}
	return first, execSQL(ctx, c.db, "CHECKPOINT", fmt.Sprintf("CALL fill(%d, %d, %d, %d, %d)", first, l.events, l.rowsPerTx, l.bytes(), most))
}

// prime gives Debezium a slot and a place in it: without one it begins where it finds the WAL, and
// would leave a backlog out.
func (c *contest) prime(ctx context.Context) (err error) {
	if c.dirs[c.db] != "" {
		return nil
	}
	c.say("    Debezium makes its slot")
	to, err := c.at.destination(ctx, 0, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	r, err := c.startStreaming(ctx, c.debezium(tuned), c.db, to)
	if err != nil {
		return err
	}
	l := runSpec{keys: keyset{count: 10}, rowsPerTx: 10, payload: contestPayload, events: 100}
	if _, err = c.fill(ctx, l); err == nil {
		_, err = watchFor(ctx, javaPatience, to, l.events, alive(r))
	}
	if err != nil {
		return r.failed(err)
	}
	if err := r.stop(ctx); err != nil {
		return err
	}
	return c.catchUp(ctx, c.ours)
}

// catchUp has the relay publish what waits in its slot, and nobody measures it.
func (c *contest) catchUp(ctx context.Context, start launch) (err error) {
	to, err := c.at.destination(ctx, 0, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	var end string
	if err := c.ask(ctx, &end, "SELECT pg_current_wal_lsn()::text"); err != nil {
		return err
	}
	r, err := start(c.db, to)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, javaPatience, errors.New("the relay has not come to the end of its slot"))
	defer cancel()
	for done := false; !done; {
		err := c.ask(ctx, &done, fmt.Sprintf("SELECT confirmed_flush_lsn >= '%s' FROM pg_replication_slots WHERE slot_name = 'bench'", end))
		if err = errors.Join(err, alive(r)(), waitUntil(bounded, time.Now().Add(10*watchEvery))); err != nil {
			return r.failed(err)
		}
	}
	return r.stop(ctx)
}

// drain has a side publish the rows that wait for it, measures it meanwhile, and checks what has
// come.
func (c *contest) drain(ctx context.Context, start launch, l runSpec, first int64) (_ outcome, err error) {
	to, err := c.at.destination(ctx, l.events, false)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	began := time.Now()
	r, err := start(c.db, to)
	if err != nil {
		return outcome{}, err
	}
	found, err := follow(ctx, to, l.events, r, began)
	if err == nil {
		found.peak, err = peakRSS(r.Pid())
	}
	if err != nil {
		return outcome{}, r.failed(err)
	}
	if err := r.stop(ctx); err != nil {
		return outcome{}, err
	}
	h, err := c.readTable(ctx, first, l)
	if err != nil {
		return outcome{}, err
	}
	return found, to.check(ctx, h)
}

// follow watches a drain: how fast it is from the first poll that found some events to the poll
// that found all, and what it costs, from the start of the process and between these two.
func follow(ctx context.Context, to place, n int, r process, began time.Time) (found outcome, err error) {
	var at time.Time
	var count int
	var cpu time.Duration
	_, err = watchFor(ctx, javaPatience, to, 1, alive(r))
	if err == nil {
		at = time.Now()
		count, err = to.depth()
	}
	if err == nil {
		cpu, err = cpuTime(r.Pid())
	}
	if err == nil {
		_, err = watchFor(ctx, javaPatience, to, n, alive(r))
	}
	if err != nil {
		return found, err
	}
	took := time.Since(at)
	used, err := cpuTime(r.Pid())
	rest := max(n-count, 1) // a smoke run may be over at the first poll
	return outcome{
		start: at.Sub(began).Seconds(), rate: float64(rest) / max(took.Seconds(), watchEvery.Seconds()),
		cpu: float64(used.Microseconds()) / float64(n), warmCPU: max(float64((used-cpu).Microseconds()), 1) / float64(rest),
	}, err
}

// peakRSS is the most memory that a process has had resident so far, in bytes (VmHWM, proc(5)).
func peakRSS(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read peak memory: %w", err)
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kB, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			return float64(kB << 10), err
		}
	}
	return 0, errors.New("read peak memory: the system does not say")
}
