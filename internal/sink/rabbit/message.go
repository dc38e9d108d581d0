// An AMQP message of an event: exchange, routing key, properties, headers and body, of the record
// that an encoder makes.

package rabbit

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// message is one lane's scratch space: makeChecked fills it from an event, and it is valid until
// the next event. Its strings alias the event's bytes and the record. This is safe because amqp091
// has serialised them when its publish call returns.
type message struct {
	layout     *layout
	limits     *limits
	exchange   string
	routingKey string
	pub        amqp.Publishing
	isCopy     bool // of a dead letter
	tableSize  int  // encoded size of pub.Headers, at most
	record     sink.Record
}

// forgetEvent drops the references to the last event's bytes, which belong to the caller again.
func (m *message) forgetEvent() {
	m.pub = amqp.Publishing{Headers: emptiedTable(m.pub.Headers)}
	m.exchange, m.routingKey = "", ""
	m.record.Forget()
}

// keptHeaders is how many headers a table has had that is used again: one that has grown stays as
// large, and is emptied as slowly.
const keptHeaders = 256

// emptiedTable is the table for the next message.
func emptiedTable(t amqp.Table) amqp.Table {
	if len(t) > keptHeaders {
		return amqp.Table{}
	}
	clear(t)
	return t
}

// aliasText is b as a string without a copy.
func aliasText(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// newMessage makes a lane's scratch message.
func newMessage(l *layout, of *limits) message {
	return message{layout: l, limits: of, pub: amqp.Publishing{Headers: amqp.Table{}}}
}

// layout has the encoder, and what is known of all its messages. It is immutable.
type layout struct {
	encoder               sink.Encoder
	exchangeOrTopic, dest uint64 // the digests of constants, else 0
	exchange, routingKey  shownName
	allow                 *Allow // nil: an event may go everywhere
	large                 *sink.LargeLock
}

// shownName is the template of a name that log lines and lists show.
type shownName struct {
	sink.Template
	personal bool // it is made from ordering keys: its values are not shown
}

// Allow are the patterns of where messages may go.
type Allow struct{ Exchange, RoutingKey sink.Allow }

// Bounds are the patterns without those that allow everything.
func (a Allow) Bounds() Allow { return Allow{a.Exchange.Bounds(), a.RoutingKey.Bounds()} }

// newLayout makes the layout of a configuration.
func newLayout(cfg *Config) (layout, error) {
	l := layout{encoder: cfg.Encoder, large: sink.NewLargeLock(), exchange: shownAs(cfg.Exchange), routingKey: shownAs(cfg.RoutingKey)}
	if len(cfg.Allow.Exchange)+len(cfg.Allow.RoutingKey) > 0 {
		l.allow = &cfg.Allow
	}
	if l.encoder == nil {
		plain, err := newPlain(cfg)
		if err != nil {
			return l, err
		}
		l.encoder = plain
	}
	if of := l.encoder.Traits(); of.Exchange != nil {
		l.exchangeOrTopic, l.dest = destinationDigests(of.Exchange, of.RoutingKey)
	}
	return l, nil
}

func shownAs(t sink.Template) shownName {
	return shownName{t, slices.Contains(t.Uses(), "key")}
}

// setDestination fills in exchange and routing key, or returns that one of them has no value.
func (m *message) setDestination(ev *event.Event) *sink.Fault {
	if m.isCopy = ev.Copy; ev.Route == nil {
		if fault := m.layout.large.Place(m.layout.encoder, ev, &m.record); fault != nil {
			return fault
		}
	}
	return m.setRoute(ev.Route)
}

// setRoute takes the destination of a route; nil: that of the record.
func (m *message) setRoute(route *event.Route) *sink.Fault {
	exchange, routingKey := m.record.Exchange, m.record.RoutingKey
	if route != nil {
		exchange, routingKey = route.Name, route.RoutingKey
	}
	m.exchange, m.routingKey = aliasText(exchange), aliasText(routingKey)
	if exchange == nil || routingKey == nil {
		return noDestination(exchange != nil)
	}
	return nil
}

// beginMaking is called before makeChecked, and endMaking when the message is written or dropped:
// see sink.LargeLock. What comes back on a channel meanwhile is kept there; nil: none is open.
func (m *message) beginMaking(alone bool, ch *conn.Channel) {
	if alone && ch != nil {
		m.layout.large.EnterAlone(&m.record, ch.AwaitTurn)
		return
	}
	m.layout.large.Enter(&m.record, alone)
}

// endMaking ends what beginMaking began. again: the message is to be made once more, alone.
func (m *message) endMaking(alone bool) (again bool) { return m.layout.large.Leave(&m.record, alone) }

// makeChecked makes the message, or returns why the event can never become one.
func (m *message) makeChecked(ev *event.Event) *sink.Fault {
	if fault := m.makeMessage(ev); fault != nil {
		return fault
	}
	return m.checkLimits()
}

// makeMessage makes the message, whatever its size.
func (m *message) makeMessage(ev *event.Event) *sink.Fault {
	if fault := sink.RowFault(ev); fault != nil {
		return fault
	}
	m.isCopy = ev.Copy
	if fault := m.layout.encoder.Encode(ev, &m.record); fault != nil {
		return fault
	}
	if fault := m.setRoute(ev.Route); fault != nil {
		return fault
	}
	return m.fillPublishing()
}

// fillPublishing makes the message of the record.
func (m *message) fillPublishing() *sink.Fault {
	rec := &m.record
	p := &rec.Properties
	m.pub = amqp.Publishing{
		Headers: emptiedTable(m.pub.Headers), DeliveryMode: amqp.Persistent, Body: rec.Value, ContentType: p.ContentType, MessageId: aliasText(p.ID), Type: aliasText(p.Type),
		CorrelationId: aliasText(p.CorrelationID), Expiration: aliasText(p.Expiration), Priority: p.Priority, Timestamp: p.Timestamp,
	}
	if m.pub.Timestamp.Unix() < 0 { // AMQP counts from 1970, without a sign
		m.pub.Timestamp = time.Time{}
	}
	if p.Transient {
		m.pub.DeliveryMode = amqp.Transient
	}
	if rec.Value == nil {
		m.pub.Body = p.NullBody
	}
	m.tableSize = 0
	for i := range rec.Headers {
		if fault := m.addHeader(&rec.Headers[i]); fault != nil {
			return fault
		}
	}
	return nil
}

// digestsOf returns two digests of an event's destination: of its exchange, and of the pair. A part
// without a value has 0. The reader calls it for every event.
func (l *layout) digestsOf(ev *event.Event) (exchangeOrTopic, dest uint64) {
	switch {
	case ev.Fault != nil:
		return 0, 0 // it goes nowhere
	case ev.Route != nil:
		return destinationDigests(ev.Route.Name, ev.Route.RoutingKey)
	case l.dest != 0:
		return l.exchangeOrTopic, l.dest
	}
	rec := recordPool.Get().(*sink.Record) //nolint:forcetypeassert // the pool has no others
	_ = l.large.Place(l.encoder, ev, rec)  // the event is refused when it is built
	exchangeOrTopic, dest = destinationDigests(rec.Exchange, rec.RoutingKey)
	rec.Forget()
	recordPool.Put(rec)
	return exchangeOrTopic, dest
}

// recordPool are scratch space to compute where an event goes, for several goroutines.
var recordPool = sync.Pool{New: func() any { return new(sink.Record) }}

// destinationDigests returns the two digests of a destination by its names.
func destinationDigests(exchange, routingKey []byte) (exchangeOrTopic, dest uint64) {
	if exchange == nil {
		return 0, 0
	}
	exchangeOrTopic = sink.ExchangeOrTopicOf(exchange)
	if routingKey == nil {
		return exchangeOrTopic, 0
	}
	return exchangeOrTopic, sink.DestOfPair(exchangeOrTopic, routingKey)
}

// routeOf names where an event goes. A part that has no value is nil. An event of which there is no
// message has a route all the same, as far as there is one: when it is fixed and replayed it goes
// there.
func (l *layout) routeOf(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	var rec sink.Record
	_ = l.large.Place(l.encoder, ev, &rec) // the event is refused when it is built
	return event.Route{Name: bytes.Clone(rec.Exchange), RoutingKey: bytes.Clone(rec.RoutingKey)}
}

// shownNames are an exchange and a routing key as logs, status and spans may show them: what is
// made from an ordering key, which may be about a person, is shown as its template. The destination
// of copies of dead letters does not depend on an event.
func (l *layout) shownNames(isCopy bool, exchange, routingKey string) (string, string) {
	if l.exchange.personal && !isCopy {
		exchange = l.exchange.String()
	}
	if l.routingKey.personal && !isCopy {
		routingKey = l.routingKey.String()
	}
	return exchange, routingKey
}

// notAllowed is the fault of an event whose exchange or routing key no pattern allows. One that has
// no name, or a name that is too long, is left to makeChecked, as is a name that all events have:
// the configuration was checked with it.
func (m *message) notAllowed(ev *event.Event) *sink.Fault {
	if m.layout.allow == nil { // the usual case, which is inlined
		return nil
	}
	return m.notAllowedBy(ev, m.layout.allow)
}

func (m *message) notAllowedBy(ev *event.Event, allow *Allow) *sink.Fault {
	if ev.Fault != nil || ev.Route == nil && m.layout.dest != 0 {
		return nil
	}
	if m.setDestination(ev) != nil || len(m.exchange)|len(m.routingKey) > maxShortString {
		return nil
	}
	switch {
	case !sink.Allows(allow.Exchange, m.exchange):
		exchange, _ := m.layout.shownNames(m.isCopy, m.exchange, m.routingKey)
		return sink.NotAllowedFault(exchangeText(exchange), exchangeText(exchange), "sink.rabbitmq.allow.exchange", true)
	case !sink.Allows(allow.RoutingKey, m.routingKey):
		_, routingKey := m.layout.shownNames(m.isCopy, m.exchange, m.routingKey)
		return sink.NotAllowedFault(m.destinationText(), fmt.Sprintf("routing key %q", routingKey), "sink.rabbitmq.allow.routing_key", false)
	}
	return nil
}

// maxShortString is what AMQP 0-9-1 carries in a shortstr: exchange, routing key, message id, type,
// correlation id, content type and the names of headers. amqp091 answers a longer one by ending the
// whole connection.
const maxShortString = 255

// limits are what a message is measured against before it is sent, since passing one would cost the
// channel or the connection with everything else in flight on it.
type limits struct {
	header atomic.Int64 // bytes of the content header frame's payload
	// bytes of a body: as many as RabbitMQ takes at all, or as the broker has named when it refused
	// more. That holds until the next connection, which may be to a node that takes more.
	body atomic.Int64
	// when the broker has named body; 0: it has not on this connection (Unix seconds)
	named atomic.Int64
}

// maxBody is RabbitMQ's own upper bound for a body, in bytes.
const maxBody = 128 << 20

// setFrameMax sets the limits of a new connection. Of its frame_max a frame takes 8 bytes itself.
func (l *limits) setFrameMax(frameMax int) {
	l.header.Store(int64(frameMax - 8))
	l.body.Store(maxBody)
	l.named.Store(0)
}

// nameBody sets the limit that the broker has named now.
func (l *limits) nameBody(size int, now time.Time) {
	l.body.Store(int64(size))
	l.named.Store(now.Unix())
}

// checkLimits measures a built message. The error text names field, size and limit, never a value.
func (m *message) checkLimits() *sink.Fault {
	p := &m.pub
	if len(m.exchange)|len(m.routingKey)|len(p.MessageId)|len(p.Type)|len(p.CorrelationId)|len(p.ContentType)|len(p.Expiration) > maxShortString {
		// 255 is all ones: the lengths' OR is above it exactly when one of them is
		return m.checkShortStrings()
	}
	if size, limit := m.headerSize(), int(m.limits.header.Load()); size > limit {
		return &sink.Fault{
			Class: sink.Permanent, Reason: sink.TooLarge, Destination: m.destinationText(),
			Text: fmt.Sprintf("headers and properties have %d bytes, a frame carries %d (frame_max of this connection: raise it, restart the relay, then replay)", size, limit),
		}
	}
	if size, limit := len(p.Body), int(m.limits.body.Load()); size > limit {
		return tooLarge(m.destinationText(), size, limit, m.limits.named.Load())
	}
	return nil
}

// checkShortStrings finds the first field that is too long.
func (m *message) checkShortStrings() *sink.Fault {
	for _, f := range []struct{ name, value string }{
		{"exchange", m.exchange},
		{"routing key", m.routingKey},
		{"message id", m.pub.MessageId},
		{"type", m.pub.Type},
		{"correlation id", m.pub.CorrelationId},
		{"content type", m.pub.ContentType},
		{"expiration", m.pub.Expiration},
	} {
		if len(f.value) > maxShortString {
			return sink.PermanentFault(sink.Invalid, fmt.Sprintf("%s has %d bytes, the protocol carries %d", f.name, len(f.value), maxShortString))
		}
	}
	return nil
}

// headerSize is the payload of the content header frame: class, weight, body size and flags (14
// bytes), then the properties that are set. A header that was written twice counts twice, so it is
// exact or a little too high.
func (m *message) headerSize() int {
	p := &m.pub
	size := 14 + 4 + m.tableSize + 1 // header table, delivery mode
	for _, s := range [...]string{p.ContentType, p.MessageId, p.Type, p.CorrelationId, p.Expiration} {
		if s != "" {
			size += 1 + len(s)
		}
	}
	if p.Priority > 0 {
		size++
	}
	if !p.Timestamp.IsZero() {
		size += 8
	}
	return size
}

// destinationText names where the message is going, as an operator would.
func (m *message) destinationText() string {
	return pairText(m.layout.shownNames(m.isCopy, m.exchange, m.routingKey))
}

// exchangeText and pairText name a destination as sink.Fault does.
func exchangeText(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return fmt.Sprintf("exchange %q", name)
}

// pairText names an exchange with a routing key, or alone when the key is longer than AMQP allows.
func pairText(name, routingKey string) string {
	if len(routingKey) > maxShortString {
		return exchangeText(name)
	}
	return fmt.Sprintf("%s, routing key %q", exchangeText(name), routingKey)
}

// tooLarge is the permanent fault of an event whose body is over the limit; both are in bytes.
// named is when the broker has named the limit, as in limits.named. The channels of this connection
// do not learn of a raised one: the broker reads it when a channel is opened.
func tooLarge(destination string, size, limit int, named int64) *sink.Fault {
	whence := "RabbitMQ takes no more"
	if named != 0 {
		whence = "max_message_size, as the broker said at " + time.Unix(named, 0).UTC().Format(time.RFC3339) + ": raise it, restart the relay, then replay"
	}
	return &sink.Fault{
		Class: sink.Permanent, Reason: sink.TooLarge, Destination: destination,
		Text: fmt.Sprintf("the body has %d bytes, the limit is %d (%s)", size, limit, whence),
	}
}

// noDestination is the permanent fault of an event without an exchange, or without a routing key
// when it has an exchange.
func noDestination(hasExchange bool) *sink.Fault {
	if hasExchange {
		return noRoutingKey
	}
	return noExchange
}

// They are shared by all events concerned.
var (
	noExchange   = sink.PermanentFault(sink.NullInTemplate, "exchange has a NULL in its template")
	noRoutingKey = sink.PermanentFault(sink.NullInTemplate, "routing key has a NULL in its template")
)
