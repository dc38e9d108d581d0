// The rows: what is started, what is loaded, and which figures count.
package main

import (
	"fmt"
	"time"
)

// rows are all rows of the stand's broker.
func (s *stand) rows() []row {
	rows := s.rabbitRows()
	if s.kind.sink == "kafka" {
		rows = s.kafkaRows()
	}
	for _, transaction := range []struct {
		name, short string
		perTx       int
	}{
		{"memory-backlog", "peak memory, 1,000,000 events that wait", 100},
		{"memory-transaction", "peak memory, one transaction of 1,000,000 rows", s.n(1_000_000)},
	} {
		l := load{events: s.n(1_000_000), perTx: transaction.perTx, keys: 1000, payload: 512, partitions: 12, heard: true}
		rows = append(rows, row{
			report: mainReport, name: transaction.name, title: transaction.short, pairs: 1,
			figures: figures{peakFigure.reach(96 << 20).as(transaction.short), rateFigure.named("events per second, beside a consumer")},
			ours:    s.drain(s.relay(), l),
		})
	}
	rows = append(rows, s.inboxRows()...)
	rows = append(rows, s.leaderChangeRows()...)
	rows = append(rows, s.repeatRows()...)
	return append(rows, s.debeziumRows()...)
}

// rabbitRows are a backlog beside a bare publisher. With one key, strict order takes a round trip
// for each event.
func (s *stand) rabbitRows() []row {
	even := load{events: s.n(40_000), perTx: 100, keys: 1000, payload: 512, ordering: "key"}
	rows := []row{{
		report: mainReport, name: "even-key", title: "backlog of 1,000 even keys in 100-row transactions, `key`", pairs: 5,
		figures: figures{rateFigure.reach(0.8).as("a backlog of 1,000 keys in 100-row transactions"), warmCPUFigure, peakFigure},
		base:    s.bare(even), ours: s.drain(s.relay(), even),
	}}
	for _, one := range []struct {
		ordering string
		far      bool
		events   int
	}{{"key", false, 3000}, {"pipelined", false, 20_000}, {"key", true, 500}, {"pipelined", true, 20_000}} {
		name, short := "one-key/"+one.ordering, "one key, `ordering: "+one.ordering+"`"
		if one.far {
			name, short = name+"/2ms", short+", 2 ms to the broker"
		}
		l := load{events: s.n(one.events), perTx: 100, keys: 1, payload: 512, ordering: one.ordering, far: one.far}
		bare := l
		bare.events = s.n(20_000)
		rows = append(rows, row{
			report: mainReport, name: name, title: short, pairs: 1,
			figures: figures{rateFigure.as(short + " (once)")}, base: s.bare(bare), ours: s.drain(s.relay(), l),
		})
	}
	return rows
}

// kafkaRows are a backlog beside a bare read of the slot.
func (s *stand) kafkaRows() (rows []row) {
	for _, l := range []load{{payload: 200, partitions: 1}, {payload: 2048, partitions: 12}} {
		l.events, l.perTx, l.keys, l.ordering = s.n(200_000), 100, 1000, "key"
		short := fmt.Sprintf("a backlog in 100-row transactions, %d B, partitions: %d", l.payload, l.partitions)
		rows = append(rows, row{
			report: mainReport, name: fmt.Sprintf("drain/%d/%d", l.payload, l.partitions), title: short, pairs: 1,
			figures: figures{rateFigure.as(short + " (once)"), warmCPUFigure, peakFigure}, base: s.bare(l), ours: s.drain(s.relay(), l),
		})
	}
	return rows
}

// bare is the broker's bare baseline, once there is a broker.
func (s *stand) bare(l load) run {
	if s.broker == nil {
		return nil
	}
	return s.broker.bare(s, l)
}

func (s *stand) inboxRows() []row {
	live := load{keys: 1000, payload: 512, partitions: 12}
	backlog := load{events: s.n(20_000), perTx: 100, keys: 1000, payload: 512, partitions: 12}
	in := func(l load) load { l.inbox = true; return l }
	const part, length = time.Second, 6 * time.Second
	return []row{{
		report: inboxReport, name: "live", title: "live 1,000/s", pairs: 5,
		figures: figures{
			p99Figure.as("live, 1,000/s: p99 from COMMIT to COMMIT of the effect"),
			p50Figure.as("the same: median"),
		},
		base: s.hear(s.relay(), live, part, length), ours: s.hear(s.relay(), in(live), part, length),
	}, {
		report: inboxReport, name: "drain", title: fmt.Sprintf("%s messages that wait, 1,000 keys", thousands(backlog.events)), pairs: 5,
		figures: figures{
			rateFigure.as("a backlog of 20,000 messages"),
			cpuFigure.named("CPU of the consumer's process per message"),
		},
		base: s.empty(backlog), ours: s.empty(in(backlog)),
	}}
}

// debeziumRows have both sides make the same messages for the same exchange and queue, read by one
// consumer, or a topic of 6 partitions.
func (s *stand) debeziumRows() []row {
	kafka := s.kind.sink == "kafka"
	server := func(settings map[string]string) program { return &debezium{settings: settings} }
	l := load{keys: 1000, payload: 200, partitions: 6, compat: true, heard: !kafka}
	events, many, single := 150_000, 2.0, 2.0
	if kafka {
		events, many, single = 400_000, 3, 2.5
	}
	drain := func(name, shape string, perTx, events int, must float64, cpu, peak, start string) row {
		l := l
		l.events, l.perTx = s.n(events), perTx
		return row{
			report: debeziumReport, name: name, title: "backlog of " + shape, pairs: 5,
			figures: figures{
				rateFigure.reach(must).as("backlog of " + shape), cpuFigure.reach(0.15).as(cpu), warmCPUFigure,
				peakFigure.reach(0.1).as(peak), startFigure.reach(0.1).as(start),
			},
			base: s.drain(server(tuned), l), ours: s.drain(s.relay(), l), usual: s.drain(server(nil), l),
		}
	}
	const length = 20 * time.Second
	rows := []row{
		drain("drain-100", "100-row transactions", 100, events, many, "CPU time per event of it", "peak memory (RSS)", "start to the first event"),
		drain("drain-1", "single-row transactions", 1, events/2, single, "", "", ""),
		{
			report: debeziumReport, name: "live", title: "live 1,000/s from a fresh start", pairs: 5,
			figures: figures{
				p99Figure.reach(0.1).as("p99 from COMMIT to the consumer, 1,000 live rows/s, first 20s"), p50Figure,
				warmP99Figure.named("p99 of the last half").as("p99 of the last 10s of these"),
				cpuFigure.reach(0.15).as("CPU time per live event, first 20s"),
				warmCPUFigure.named("CPU per event of the last half").as("CPU time per live event, last 10s"),
			},
			base: s.hear(server(tuned), l, length/2, length), ours: s.hear(s.relay(), l, length/2, length), usual: s.hear(server(nil), l, length/2, length),
		},
	}
	if kafka {
		return rows
	}
	return append(rows, row{
		report: debeziumReport, name: "unbound", title: fmt.Sprintf("binding of the queue removed for %s under live rows, then restored", unboundFor), pairs: 1,
		figures: figures{lostFigure.byItself().reach(0).as(fmt.Sprintf("binding removed for %s under live rows: events lost", unboundFor))},
		base:    s.unbind(server(tuned), l), ours: s.unbind(s.relay(), l),
	})
}
