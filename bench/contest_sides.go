// The two sides of the contest: Debezium Server and the relay, started with the same configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// contender is a process that publishes, of either side.
type contender struct {
	process
	streams func(context.Context) error // waits until it does
	stop    func(context.Context) error // in order, so that the next one repeats nothing
}

// process is what is seen of it from outside.
type process interface {
	Pid() int
	Running() bool
	Log() string
	Kill() error
}

// failed is err with the end of the process's log, and the process is gone.
func (r *contender) failed(err error) error {
	log := r.Log()
	if len(log) > 4000 {
		log = "…" + log[len(log)-4000:]
	}
	return errors.Join(fmt.Errorf("%w: %s", err, log), r.Kill())
}

// javaPatience is the patience with a process of Java, which starts slowly where others work, too.
const javaPatience = 4 * time.Minute

// launch starts a contender on a database and waits for nothing.
type launch func(db string, to destination) (*contender, error)

// ours starts the relay, which makes the messages that Debezium makes.
func (c *contest) ours(db string, to destination) (*contender, error) {
	config := strings.Replace(c.source(), c.db, db, 1) + fmt.Sprintf("sink:\n  %s\n  compat:\n    profile: debezium-server\n    options:\n", to.sink())
	options := eventRouter(to)
	for name, value := range to.debezium() {
		name = strings.TrimPrefix(name, "debezium.")
		if name != "sink.type" && !strings.HasPrefix(name, "sink.kafka.") && !strings.HasPrefix(name, "sink.rabbitmq.connection.") {
			options[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		config += fmt.Sprintf("      %s: %q\n", name, options[name])
	}
	if err := c.initSlot(context.Background(), config); err != nil {
		return nil, err
	}
	relay, err := c.startRelay(config)
	if err != nil {
		return nil, err
	}
	return &contender{relay, relay.WaitReady, func(context.Context) error { return c.stopRelay(relay) }}, nil
}

// tuned are the settings by which Debezium is quickest here.
var tuned = map[string]string{
	"poll.interval.ms": "10", "offset.flush.interval.ms": "1000", "max.batch.size": "8192", "max.queue.size": "32768",
}

// debezium starts Debezium Server with more settings of its connector, or as it is: "nil" leaves
// all at their defaults.
func (c *contest) debezium(settings map[string]string) launch {
	return func(db string, to destination) (*contender, error) {
		source, err := debeziumserver.DebeziumSource(db, "outbox")
		if err != nil {
			return nil, err
		}
		delete(source, "poll.interval.ms") // which is the tests'
		if db != c.db {
			source["slot.name"] = "rival" // names are the server's, not the database's
		}
		source["publication.name"], source["publication.autocreate.mode"] = "bench", "disabled"
		for name, value := range settings {
			source[name] = value
		}
		debeziumserver.EventRouter(source, eventRouter(to))
		d, err := debeziumserver.LaunchDebezium(debeziumserver.DebeziumOptions{DB: db, Source: source, Sink: to.debezium(), Dir: c.dirs[db], Java: []string{javaHeap()}})
		if err != nil {
			return nil, err
		}
		c.dirs[db] = d.Dir()
		return &contender{d, d.WaitStreaming, func(ctx context.Context) error {
			return errors.Join(stopDebezium(ctx, d), c.released(ctx))
		}}, nil
	}
}

// released waits until the server has noticed that nobody reads a slot any more: a Debezium that
// finds its own in use waits 10 s.
func (c *contest) released(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, javaPatience, errors.New("a slot is still in use"))
	defer cancel()
	for free := false; !free; {
		err := c.ask(ctx, &free, "SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE active)")
		if err = errors.Join(err, waitUntil(bounded, time.Now().Add(10*watchEvery))); err != nil {
			return err
		}
	}
	return nil
}

// eventRouter are the options of the Outbox Event Router.
func eventRouter(to destination) map[string]string {
	return map[string]string{"route.topic.replacement": to.topic(), "table.fields.additional.placement": "type:header:eventType"}
}

// stopDebezium stops it in order, so that it stores how far it has come.
func stopDebezium(ctx context.Context, d *debeziumserver.Debezium) error {
	if err := d.Stop(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop Debezium: %w", err), d.Kill())
	}
	return nil
}

// javaHeap is the limit that Java sets itself when it is given none: a quarter of the memory.
func javaHeap() string {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return "-Xmx2g"
	}
	return fmt.Sprintf("-Xmx%dm", info.Totalram*uint64(info.Unit)/4>>20)
}
