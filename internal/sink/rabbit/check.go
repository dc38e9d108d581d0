// The check of RabbitMQ: everything that the relay will need of the broker, with the fix for what
// is missing.

package rabbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// Check examines the broker as a start needs it: each address, the login, and each exchange and
// queue that the configuration names, with the right to publish there. It has connections of its
// own, so that nothing a running relay remembers answers for the broker. It publishes nothing. It
// returns after all answers, or soon after ctx is done.
func Check(ctx context.Context, cfg Config) []sink.Finding {
	s, err := New(cfg)
	if err != nil {
		return []sink.Finding{{Name: "broker configuration", Detail: err.Error(), Fix: "correct sink.rabbitmq"}}
	}
	var found, exchange, room []sink.Finding
	for _, url := range s.cfg.URLs {
		sess, err := s.cfg.DialOne(ctx, url, nil)
		if err != nil {
			// brokers of two clusters are a fault, even when both answer
			warn := !errors.Is(err, errOtherCluster)
			found = append(found, sink.Finding{Name: "broker", Warn: warn, Detail: conn.ErrorText(err), Fix: fixDial(err)})
			continue
		}
		found = append(found, sink.Finding{Name: "broker", OK: true, Detail: fmt.Sprintf("logged in to %s at %s", sess.Product(), sess.Address)})
		if doubt := s.clusterDoubt(sess); doubt != "" {
			found = append(found, sink.Finding{Name: "broker", Warn: true, Detail: doubt, Fix: fixDoubt})
		}
		if exchange == nil {
			exchange = append([]sink.Finding{s.checkExchange(ctx, sess)}, s.checkAllowed(ctx, sess)...)
			exchange = append(exchange, s.checkQueues(ctx, sess)...)
			exchange = append(exchange, s.checkMirror(ctx, sess)...)
			room = s.checkRoom(ctx, sess, url)
		}
		sess.Close(conn.CloseTimeout)
	}
	for i := range found {
		found[i].Warn = found[i].Warn && exchange != nil // one other address is enough
	}
	return slices.Concat(found, clearLogins(s.cfg.URLs), exchange, room)
}

// checkRoom opens as many connections and channels as the relay does. It reports only a limit that
// is too low in itself: a smaller number that is left may be because a relay runs.
func (s *Sink) checkRoom(ctx context.Context, sess *conn.Session, url string) (found []sink.Finding) {
	open := []*conn.Session{sess}
	for range s.links { // one more for a private connection
		other, err := s.cfg.DialOne(ctx, url, nil)
		if limit, is := connectionLimit(err); is && limit <= len(s.links) {
			// without a private connection the relay finds another way, without those of lanes it
			// does not
			found = append(found, sink.Finding{Name: "connections", Warn: limit == len(s.links), Detail: conn.ErrorText(err), Fix: fixConnections})
		}
		if err != nil {
			break
		}
		open = append(open, other)
	}
	defer func() {
		for _, other := range open[1:] {
			other.Close(conn.CloseTimeout)
		}
	}()
	allowed := sess.Allowed
	for _, sess := range open[:min(len(open), len(s.links))] {
		sess.OpenAll(ctx)
		if limit := channelLimit(sess.EndError()); limit > 0 {
			allowed = min(allowed, max(limit/len(s.links), 1))
		}
	}
	if few := s.fewChannels(allowed); few != "" {
		found = append(found, sink.Finding{Name: "channels", Warn: true, Detail: few, Fix: s.fixFewChannels()})
	}
	return found
}

// checkExchange examines the exchange of all events, if the configuration names one.
func (s *Sink) checkExchange(ctx context.Context, sess *conn.Session) sink.Finding {
	name, constant := s.cfg.Exchange.Constant()
	if !constant {
		return sink.Finding{Name: "exchange", OK: true, Detail: fmt.Sprintf("named by each event (%s): not checked; check --publish tries one", s.cfg.Exchange)}
	}
	f := sink.Finding{Name: exchangeText(name)}
	// for a routing key that depends on the event the template's text is enough: topic rights are
	// not checked then
	routingKey, oneKey := s.cfg.RoutingKey.Constant()
	ex, err := probePublish(ctx, sess, name, routingKey)
	switch {
	case err != nil:
		f.Detail, f.Fix = "no answer: "+conn.ErrorText(err), "check the log of the broker at "+sess.Address+" for why it hung up or did not answer"
	case ex == nil && name == "" && oneKey:
		return checkQueue(ctx, sess, routingKey)
	case ex == nil:
		f.OK, f.Detail = true, "exists, and this user may publish to it"
		s.checkType(ctx, sess, name, &f)
	case ex.Code == amqp.NotFound && s.cfg.Declare:
		f.OK, f.Detail = true, "is missing, and will be declared at the start, if this user may (not tried)"
		f.Running = &sink.Finding{Name: f.Name, Detail: brokerText(ex) + "; a relay that runs does not declare it again", Fix: s.Held(sink.ExchangeOrTopicOf([]byte(name)))}
		// when there are bindings, the findings of their queues have the fix
		if f.Running.Fix == "" {
			f.Running.Fix = "declare the exchange; the relay then binds the queues of sink.rabbitmq.bindings"
		}
	case ex.Code == amqp.NotFound:
		f.Detail = brokerText(ex)
		f.Fix = fmt.Sprintf("declare it, for example: rabbitmqadmin declare exchange name=%s type=topic durable=true; or set sink.rabbitmq.declare: true", name)
	case isTopicRight(ex) && !oneKey:
		f.OK, f.Detail = true, "exists; this user may publish to some routing keys only"
	case ex.Code == amqp.AccessRefused:
		f.Detail = brokerText(ex)
		f.Fix = "grant the write right: rabbitmqctl set_permissions -p VHOST USER CONFIGURE WRITE READ"
	default:
		f.Detail, f.Fix = brokerText(ex), "check the log of the broker at "+sess.Address
	}
	return f
}

// maxNamed is how many exchanges of sink.rabbitmq.allow are looked for at most.
const maxNamed = 20

// checkAllowed looks for the exchanges that sink.rabbitmq.allow names without a *, when each event
// names its own exchange. An event for a missing exchange waits; others do not.
func (s *Sink) checkAllowed(ctx context.Context, sess *conn.Session) (found []sink.Finding) {
	if _, constant := s.cfg.Exchange.Constant(); constant {
		return nil
	}
	for _, name := range s.cfg.Allow.Exchange {
		if name == "" || strings.Contains(name, "*") || len(found) == maxNamed {
			continue
		}
		f := sink.Finding{Name: exchangeText(name), OK: true, Detail: "exists, and this user may publish to it"}
		switch ex, err := probePublish(ctx, sess, name, ""); {
		case err != nil:
			f = sink.Finding{Name: f.Name, Detail: "no answer: " + conn.ErrorText(err), Fix: "check the log of the broker at " + sess.Address}
		case ex != nil && isTopicRight(ex):
			f.Detail = "exists; this user may publish to some routing keys only"
		case ex != nil:
			f = sink.Finding{Name: f.Name, Warn: true, Detail: brokerText(ex), Fix: "declare it and bind a queue, give this user the right to write there, or remove it from sink.rabbitmq.allow.exchange"}
		}
		found = append(found, f)
	}
	return found
}

// checkType adds to a finding what the type of an existing exchange means, if the broker tells the
// type.
func (s *Sink) checkType(ctx context.Context, sess *conn.Session, name string, f *sink.Finding) {
	want := cmp.Or(s.cfg.ExchangeType, amqp.ExchangeTopic)
	kind := exchangeTypeOf(ctx, sess, name, want)
	ignored, keeps := s.cfg.Unroutable.isIgnored(name), keepingTypes[kind]
	switch {
	case keeps != "" && !ignored:
		*f = sink.Finding{
			Name: f.Name, Warn: true,
			Detail: fmt.Sprintf("is of type %s, which %s and answers NO_ROUTE for them all the same: such an event would be sent again and again", kind, keeps),
			Fix:    fmt.Sprintf("set sink.rabbitmq.unroutable: ignore, or {%q: ignore}", name),
		}
	case s.cfg.Declare && kind != "" && kind != want:
		*f = sink.Finding{
			Name: f.Name, Warn: true, Detail: fmt.Sprintf("is of type %s, and sink.rabbitmq.exchange_type is %s", kind, want),
			Fix: "set sink.rabbitmq.exchange_type to " + kind + ", or make the exchange again, with all its bindings",
		}
	case ignored:
		f.Detail += "; of type " + cmp.Or(kind, "unknown") + ": what it returns counts as delivered (sink.rabbitmq.unroutable)"
	}
}

// typeText matches RabbitMQ's text about the type. It has more quotes around a name that Erlang
// would quote.
var typeText = lazy.Regexp(`inequivalent arg 'type' for exchange .* but current is '+([^']*)'`)

// exchangeTypeOf asks for the type of an exchange. It returns "" when the broker does not tell, for
// example to a user without the right to configure the exchange. AMQP has no request for it, and a
// passive declaration ignores the type. So the exchange is declared in a way that is always refused
// (406), and never made: with the type guess and an alternate exchange that is a number. If the
// exchange has another type, the broker refuses the type and names the one that it has. Otherwise
// it refuses the number.
func exchangeTypeOf(ctx context.Context, sess *conn.Session, name, guess string) string {
	err := sess.OnThrowawayChannel(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, guess, true, false, false, false, amqp.Table{"alternate-exchange": int32(0)})
	})
	ex := brokerException(err, sess)
	if ex == nil || ex.Code != amqp.PreconditionFailed {
		return ""
	}
	if found := typeText().FindStringSubmatch(ex.Reason); found != nil {
		return found[1]
	}
	// it refused another argument, so the type was right
	if strings.Contains(ex.Reason, "inequivalent arg") {
		return guess
	}
	return ""
}

// checkQueue looks for a queue that gets events through the default exchange.
func checkQueue(ctx context.Context, sess *conn.Session, queue string) sink.Finding {
	f := sink.Finding{Name: fmt.Sprintf("queue %q", queue)}
	switch ex, err := passiveQueue(ctx, sess, queue); {
	case err != nil:
		f.Detail, f.Fix = "no answer: "+conn.ErrorText(err), "check the log of the broker at "+sess.Address
	case ex == nil, ex.Code == amqp.ResourceLocked: // only another connection may use it
		f.OK, f.Detail = true, "exists"
	default:
		f.Detail, f.Fix = brokerText(ex), fmt.Sprintf("declare it, for example: rabbitmqadmin declare queue name=%s durable=true", queue)
	}
	return f
}

// checkMirror looks for the exchange or queue of dead_letters.mirror. It only warns, because
// delivery does not depend on it.
func (s *Sink) checkMirror(ctx context.Context, sess *conn.Session) []sink.Finding {
	m := s.cfg.Mirror
	if m == nil {
		return nil
	}
	exchange, routingKey := string(m.Name), string(m.RoutingKey)
	f := sink.Finding{OK: true, Detail: "exists, and this user may publish to it"}
	name := fmt.Sprintf("mirror exchange %q", exchange)
	if exchange == "" {
		name = fmt.Sprintf("mirror queue %q", routingKey)
		f = checkQueue(ctx, sess, routingKey)
	} else if ex, err := probePublish(ctx, sess, exchange, routingKey); err != nil {
		f = sink.Finding{Detail: "no answer: " + conn.ErrorText(err), Fix: "check the log of the broker at " + sess.Address}
	} else if ex != nil {
		f = sink.Finding{Detail: brokerText(ex), Fix: "declare it and bind a queue, or give this user the right to write there"}
	}
	f.Name, f.Warn = name, !f.OK
	return []sink.Finding{f}
}

// checkQueues looks for the queues of the bindings.
func (s *Sink) checkQueues(ctx context.Context, sess *conn.Session) (found []sink.Finding) {
	for _, b := range s.cfg.Bindings {
		f := sink.Finding{Name: fmt.Sprintf("queue %q", b.Queue), OK: true, Detail: "exists; it is bound at the start, if this user may (not tried)"}
		switch ex, err := passiveQueue(ctx, sess, b.Queue); {
		case err != nil:
			f.OK, f.Detail, f.Fix = false, "no answer: "+conn.ErrorText(err), "check the log of the broker at "+sess.Address
		case ex == nil:
		case ex.Code == amqp.NotFound:
			f.Detail = "is missing; it is declared and bound at the start, if this user may (not tried)"
			f.Running = &sink.Finding{
				Name: f.Name, Warn: true, Detail: brokerText(ex) + "; a relay that runs declares and binds it at its next connection, or after an event that no queue took",
				Fix: "declare and bind it, or restart the relay: what is sent until then does not reach it",
			}
		default:
			f.OK, f.Detail, f.Fix = false, brokerText(ex), "correct sink.rabbitmq.bindings, or give this user its rights"
		}
		found = append(found, f)
	}
	return found
}

// probeMark is neither a number of milliseconds nor the name of a user.
const probeMark = "cdc-relay-probe"

// probePublish asks how the broker would take a message for exchange and routing key, without
// publishing one. ex is nil when it would be taken (it may still be unroutable), else the
// exception.
//
// The probe is a message that the broker examines and can never route: RabbitMQ checks the right to
// write, the exchange and the right to the topic before it refuses an expiration that is not a
// number, or a user_id that is not the sender's. (A passive declare does not show the right to
// write.)
func probePublish(ctx context.Context, s *conn.Session, exchange, routingKey string) (ex *amqp.Error, err error) {
	closes := make(chan *amqp.Error, 1)
	err = s.OnThrowawayChannel(ctx, func(ch *amqp.Channel) error {
		ch.NotifyClose(closes)
		if err := ch.Confirm(false); err != nil {
			return err
		}
		answered, err := ch.PublishWithDeferredConfirm(exchange, routingKey, false, false, amqp.Publishing{
			Expiration: probeMark, UserId: probeMark,
		})
		if err != nil {
			return err
		}
		// for the exception; a broker that ignores these properties confirms the message
		answered.Wait()
		return nil
	})
	if err != nil {
		return nil, err
	}
	ex = <-closes // without a value when OnThrowawayChannel has closed the channel
	switch {
	case ex == nil, ex.Code == amqp.PreconditionFailed:
		return nil, nil
	case scopeOn(s, ex) != channelScope:
		return nil, conn.ErrGone
	}
	return ex, nil
}

// fixDial returns the fix for a connection that cannot be made.
func fixDial(err error) string {
	var network *net.OpError
	fix := fixRefusal(err)
	switch {
	case fix != "":
		return fix
	case errors.As(err, &network), errors.Is(err, conn.ErrSilent):
		return "check sink.rabbitmq.url, that the broker runs, and that no firewall is in between"
	}
	return "check sink.rabbitmq"
}

// clearLogins warns of addresses to which the password goes over a network without TLS.
func clearLogins(urls []string) []sink.Finding {
	var hosts []string
	for _, u := range urls {
		uri, err := amqp.ParseURI(u)
		if err == nil && uri.Scheme == "amqp" && !sink.Loopback(uri.Host) {
			hosts = append(hosts, net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)))
		}
	}
	if hosts == nil {
		return nil
	}
	return []sink.Finding{{
		Name: "login", Warn: true, Detail: "without TLS to " + strings.Join(hosts, ", ") + ": whoever is in between reads the password and the events",
		Fix: "sink.rabbitmq.url: amqps://HOST:5671/VHOST, and sink.rabbitmq.tls.ca for a CA of your own; the broker needs listeners.ssl.default = 5671",
	}}
}
