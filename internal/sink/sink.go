// Package sink defines the contract between the lanes and a broker: what a sink does, and the
// outcomes it reports.
package sink

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Place is where an event belongs inside the relay. Digests have 64 bits. Two names with the same
// digest only wait and pause together.
type Place struct {
	Lane int // from 0
	// digest of the exchange or topic, within which the order of a key is kept
	ExchangeOrTopic uint64
	// Dest is the digest of exchange and routing key, or of topic and partition.
	Dest uint64
}

// Sink publishes events to one broker. Publish is called by one goroutine per lane, Run by one
// goroutine of its own.
type Sink interface {
	// Place says where an event belongs. It does no I/O and does not block; it may be called from
	// several goroutines. All events of an ordering key and exchange or topic have the same lane
	// for the life of the sink. ok is false while a topic is unknown, and for a bounded time while
	// a topic that may be new is requested again. The reader then waits until Changed delivers,
	// with the event outside the in-flight budget, and reads no event of any topic. A topic that
	// was answered with an error has a lane of its own, events without a topic share one: Publish
	// there returns the fault. An event with a Route goes there.
	Place(ev *event.Event) (p Place, ok bool)

	// Route names where the event goes, for a row of the retry table: what Publish would use now. A
	// template without a value leaves its part nil.
	Route(ev *event.Event) event.Route

	// Changed delivers after metadata changed, so that Place is worth asking again. A sink whose
	// Place always answers returns nil.
	Changed() <-chan struct{}

	// Publish sends the events in order and fills in one outcome each; len(outcomes) ==
	// len(events), all zero at the call.
	//
	// A call carries at most one event of an ordering key, unless the sink appends a call
	// atomically or ordering is pipelined. After a rejected event nothing of its key and exchange
	// or topic is sent in that call: those are Unsent. Others go on, those of the key elsewhere
	// too. With a nil error every outcome is Confirmed, Rejected or Unsent.
	//
	// A non-nil error means unavailable, or a refusal that does not say which of several events it
	// is about; and at least one outcome is Unknown or all are Unsent. Those two are offered again,
	// in order and before anything new: one by one until one is confirmed, not as the same call. So
	// what was refused is alone in the end. A sink whose broker knows a repeat by the call it came
	// in makes that call again inside Publish. While the broker is away, or has blocked its
	// publishers, Publish waits; no attempt is spent. It returns soon after ctx is done, then with
	// ctx's error, and never hangs on a dead connection.
	Publish(ctx context.Context, lane int, events []*event.Event, outcomes []Outcome) error

	// Run keeps the connections until ctx is done; it returns nil then, and an error only when the
	// sink can never work (an *event.Stop). Publish works only while Run runs.
	Run(ctx context.Context) error
}

// Placer is a Sink whose Place may have no answer until the broker gives one.
type Placer interface {
	// PlaceAnyway is called when the disk guard begins (on) or ends. While it is on, Place also
	// answers for a topic of which nothing is known: like a topic in error, it gets a lane of its
	// own for the life of the sink. Changed delivers when the guard begins.
	PlaceAnyway(on bool)
}

// Prober is a Sink that can send an event apart from its lanes. Without it such events go through
// their lane with the others.
type Prober interface {
	// Probe sends one event that was refused before: for its destination's fault, or (suspect) for
	// one of its own. What the broker closes over the event carries no other, and no other waits
	// for its answer, which may take as long as the broker takes. The caller sends nothing of the
	// event's ordering group meanwhile. Outcome and error are those of a Publish of one event.
	// Probe may be called by several goroutines. It works only while Run runs.
	Probe(ctx context.Context, ev *event.Event, suspect bool) (Outcome, error)
}

// Leader is a Sink that uses more of the broker while its relay leads. Lead is called when a term
// begins, and when all calls of the term have ended. It returns at once.
type Leader interface{ Lead(on bool) }

// Holder is a Sink whose exchanges give a message only to queues that are bound when it comes.
type Holder interface {
	// Held returns Fault.Held for an exchange that was missing.
	Held(exchangeOrTopic uint64) string
}

// The bounds of a call: MaxCallEvents events, or MaxCallBytes bytes (a larger event goes alone).
// They bound what a sink keeps in addition to the in-flight budget, for example the room for
// returned messages of a lane on RabbitMQ.
const (
	MaxCallEvents = 512
	MaxCallBytes  = 1 << 20
)

// Finding is the result of one step of a sink's check.
type Finding struct {
	Name   string
	OK     bool
	Warn   bool   // it is not OK, but the relay can work
	Detail string // what was found
	Fix    string // what to do about it; "" when OK
	// Running replaces the finding while a relay runs: what is missing would be made only at a
	// start.
	Running *Finding
}

// Driver is a kind of sink. Adding one is a folder below sink that has a Driver, and a line in
// sink/drivers. Nothing else names a sink.
type Driver struct {
	Name      string // of its section below sink; in status, metrics and traces too
	Broker    string // as people call it; "": there is none
	Operation string // publishing, as traces name it
	// Route has the parts of a route. Order is kept within the first, which becomes Route.Name; a
	// second becomes Route.RoutingKey. Without a broker there is none.
	Route []RoutePart
	// OwnLanes says that the sink decides how many lanes there are, and delivery.lanes has no
	// effect.
	OwnLanes bool
	// AppendsCalls says that the sink appends a call as a whole and has one call of a lane in
	// flight: an event need not wait for the earlier one of its key, they go together.
	AppendsCalls bool
	// NoHeaders says that a message has none but the relay's own.
	NoHeaders bool
	// Reserved are names of headers that this sink or its broker has for itself, next to those
	// of all sinks.
	Reserved []string
	// CloudEvents says how messages carry CloudEvents; nil: they cannot.
	CloudEvents *CloudEventsBinding
	// Does is the description of a section without keys.
	Does string
	// Settings makes the section with its defaults.
	Settings func() Settings
	// FixRefusal returns the fix for a refusal of a test message; "" leaves it to the command. It
	// may be nil.
	FixRefusal func(Reason, *event.Route) string
}

// CloudEventsBinding is how the messages of a broker carry the attributes of a CloudEvent.
type CloudEventsBinding struct {
	Prefix string // the header of an attribute is this and the attribute's name
	// ContentType is the header with the content type; "": it is the property of a message.
	ContentType string
	// Taken are the headers that rows may not write then, as in PlainConfig.
	Taken []string
}

// RoutePart is a part of a route as the configuration, the commands and the API call it.
type RoutePart struct {
	Key      string // such as routing_key; the commands' flag has - for _
	Replay   string // what the flag does: publish with this routing key instead
	Limit    int    // bytes; 0: Check knows
	MayEmpty bool   // an empty name is a name
	// Check refuses a fixed name; nil: Limit is all there is.
	Check func(name string) error
}

// Title returns the name of the part in prose.
func (p *RoutePart) Title() string { return strings.ReplaceAll(p.Key, "_", " ") }

// Flag returns the name of the part's flag.
func (p *RoutePart) Flag() string { return strings.ReplaceAll(p.Key, "_", "-") }

// Section returns the path of the sink's section, with a dot at its end.
func (d *Driver) Section() string { return "sink." + d.Name + "." }

// RouteText names a route for people.
func (d *Driver) RouteText(r *event.Route) string {
	if len(d.Route) == 0 {
		return string(r.Name)
	}
	text := fmt.Sprintf("%s %q", d.Route[0].Title(), r.Name)
	if len(d.Route) > 1 {
		text += fmt.Sprintf(", %s %q", d.Route[1].Title(), r.RoutingKey)
	}
	return text
}

// RouteOf makes a route of some of its parts, by their keys. A part that is not given is nil. Parts
// of other sinks are ignored.
func (d *Driver) RouteOf(parts map[string]string) (r event.Route) {
	for i, p := range d.Route {
		if value, given := parts[p.Key]; given {
			*[]*[]byte{&r.Name, &r.RoutingKey}[i] = append([]byte{}, value...)
		}
	}
	return r
}

// HasPart reports whether the driver's routes have a part of this key.
func (d *Driver) HasPart(key string) bool {
	return slices.ContainsFunc(d.Route, func(p RoutePart) bool { return p.Key == key })
}

// Settings is a sink's section of the configuration; each sink has a struct of its own for it.
type Settings interface {
	// Keys returns the keys of the section, bound to the struct, in the order of `config print`.
	// There are none when naming the sink is enough.
	Keys() []setting.Key
	// Validate reports what is wrong with the values together. It opens nothing.
	Validate(v *Validation)
	// Templates returns the templates that say where a message goes, as parts of the Driver's
	// Route. A profile writes its own into them. The configuration validates them.
	Templates() []NamedTemplate
	// Columns returns the extra columns that the section names outside its templates.
	Columns() []string
	// Open makes the sink. It starts nothing.
	Open(o *Opening) (Opened, error)
	// Check asks the broker for what a start needs. It publishes nothing, and returns soon after
	// ctx is done.
	Check(ctx context.Context, o *Opening) ([]Finding, error)
}

// NamedTemplate is a template with its key, which names a part of the route.
type NamedTemplate struct {
	Key string
	*Template
	// Allow has the patterns of names that rows may make.
	Allow Allow
	// Check refuses a template that can never give a valid name. nil means that any template can.
	Check func(Template) error
}

// Validation is where a section reports what is wrong with it.
type Validation struct {
	*setting.Reader
	Section string // the section's path, with a dot at its end
}

// Opening is what a sink gets of the rest of the configuration and of the relay. The functions in
// it are optional, must not block and may be called concurrently.
type Opening struct {
	Slot           string // names the connections
	Lanes          int    // how many there may be; a sink with OwnLanes has its own
	OneLane        bool   // commit order over all keys
	ConfirmTimeout time.Duration
	PlainConfig
	// Encoder makes the encoder of a profile or of CloudEvents, for these extra columns. nil means
	// that there is neither, and the sink's plain encoder is used. Both leave to plain the copies
	// of dead letters, and CloudEvents all that is not theirs.
	Encoder func(columns []string, plain Encoder) (Encoder, error)
	Log     *zap.Logger
	// Mirror is where copies of dead letters go, for Check; nil when there is no mirror.
	Mirror *event.Route

	// Connected is called when a connection was opened; again says that there was one before.
	Connected   func(again bool)
	ChannelOpen func()
	// Confirms counts the broker's answers by event.
	Confirms func(acks, nacks, returned, timeouts int)
}

// Opened is a sink that its driver made. Both methods may be called from anywhere.
type Opened interface {
	Sink
	Status() Status
	// SentTo returns where an event was sent, as people may see it.
	SentTo(ev *event.Event) Sent
}

// Status is the state of a sink's connections.
type Status struct {
	Up              bool
	Why             string // when it is not up
	Connections     int
	Channels        int   // of a broker that has them
	PendingConfirms int   // published and not answered
	Ignored         int64 // returned events that count as delivered
	Found           int64 // events of before the term that the broker had: not sent again
	// destinations that calls wait for, while they do not know yet what becomes of their events
	Waiting []Paused
}

// Paused is a destination whose events wait: it has rejected the last event that was sent to it, or
// has not answered for a while.
type Paused struct {
	Destination string // as an operator would name it
	Reason      Reason
	Text        string
	Since       time.Time
	Fix         string // Fault.Held
	// zero when a probe is on its way, when none is sent, or when it is not known
	NextProbe time.Time
	// Place is what is paused, without its lane. Dest 0 means a whole exchange or topic, and the
	// zero value that it is not known.
	Place Place
}

// Sent says where an event was sent, as people may see it.
type Sent struct {
	Name       string // exchange or topic
	RoutingKey string
	Partition  int // -1 when there is none, or it is not known
}
