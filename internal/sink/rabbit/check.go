package rabbit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Check examines the broker as a start would need it: each address, the login, and a constant exchange with the right to
// publish there. Nothing is published. It returns when all is answered, or soon after ctx is done.
func Check(ctx context.Context, cfg Config) []sink.Finding {
	s, err := New(cfg)
	if err != nil {
		return []sink.Finding{{Name: "broker configuration", Detail: err.Error(), Mend: "correct sink.rabbitmq"}}
	}
	var found, exchange []sink.Finding
	for _, url := range s.cfg.URLs {
		sess, err := s.dialOne(ctx, url)
		if err != nil {
			warn := !errors.Is(err, errOtherCluster) // two clusters are a fault, however well each answers
			found = append(found, sink.Finding{Name: "broker", Warn: warn, Detail: words(err), Mend: mendDial(err)})
			continue
		}
		found = append(found, sink.Finding{Name: "broker", OK: true, Detail: fmt.Sprintf("logged in to %s at %s", sess.product(), sess.address)})
		sess.work.Go(sess.watch)
		if doubt := s.doubt(sess); doubt != "" {
			found = append(found, sink.Finding{Name: "broker", Warn: true, Detail: doubt, Mend: adviceDoubt})
		}
		if exchange == nil {
			exchange = append(exchange, s.checkExchange(ctx, sess))
		}
		sess.close(closeTimeout)
	}
	for i := range found {
		found[i].Warn = found[i].Warn && exchange != nil // another address is enough
	}
	return append(found, exchange...)
}

// product is what the broker says it is.
func (s *session) product() string {
	product, _ := s.conn.Properties["product"].(string)
	version, _ := s.conn.Properties["version"].(string)
	return product + " " + version
}

// checkExchange examines the exchange, when there is one for all events.
func (s *Sink) checkExchange(ctx context.Context, sess *session) sink.Finding {
	name, constant := s.cfg.Exchange.Constant()
	if !constant {
		return sink.Finding{Name: "exchange", OK: true, Detail: fmt.Sprintf("named by each event (%s): not checked; check --publish tries one", s.cfg.Exchange)}
	}
	f := sink.Finding{Name: exchange(name)}
	routingKey, _ := s.cfg.RoutingKey.Constant() // a template's text is as good as any: no topic right is meant then
	ex, err := sess.probe(ctx, name, routingKey, nil)
	switch {
	case err != nil:
		f.Detail, f.Mend = "no answer: "+words(err), sess.mendSilence()
	case ex == nil:
		f.OK, f.Detail = true, "exists, and this user may publish to it"
	case ex.Code == amqp.NotFound && s.cfg.Declare:
		f.OK, f.Detail = true, "is missing, and will be declared at the start, if this user may (not tried)"
	case ex.Code == amqp.NotFound:
		f.Detail = brokerWords(ex)
		f.Mend = fmt.Sprintf("declare it, for example: rabbitmqadmin declare exchange name=%s type=topic durable=true; or set sink.rabbitmq.declare: true", name)
	case topicRight(ex) && !isConstant(s.cfg.RoutingKey.Constant()):
		f.OK, f.Detail = true, "exists; this user may publish to some routing keys only"
	case ex.Code == amqp.AccessRefused:
		f.Detail = brokerWords(ex)
		f.Mend = "grant the write right: rabbitmqctl set_permissions -p VHOST USER CONFIGURE WRITE READ"
	default:
		f.Detail, f.Mend = brokerWords(ex), "look into the log of the broker at "+sess.address
	}
	return f
}

// mendSilence is what to do about a broker that let the relay log in and did not answer then.
func (s *session) mendSilence() string {
	return "look into the log of the broker at " + s.address + " for why it hung up or did not answer"
}

func isConstant(_ string, constant bool) bool { return constant }

// mendDial is what to do about a connection that cannot be made.
func mendDial(err error) string {
	var network *net.OpError
	mend := mendRefusal(err)
	switch {
	case mend != "":
		return mend
	case errors.As(err, &network), errors.Is(err, errSilent):
		return "check sink.rabbitmq.url, that the broker runs, and that no firewall is in between"
	}
	return "check sink.rabbitmq"
}

// mendRefusal is what to do when somebody answers, and a connection cannot be made; "" when that is not so.
func mendRefusal(err error) string {
	if mend := sink.MendTLS("sink.rabbitmq.tls", err); mend != "" {
		return mend
	}
	var ex *amqp.Error
	var notTLS tls.RecordHeaderError
	switch {
	case errors.Is(err, errOtherCluster):
		return adviceOtherCluster
	case errors.As(err, &notTLS):
		return "the port does not speak TLS: use the broker's TLS port, or an amqp:// URL"
	case errors.As(err, &ex) && ex.Code == amqp.AccessRefused:
		return "check sink.rabbitmq.username and password"
	case errors.As(err, &ex) && ex.Code == amqp.NotAllowed:
		return "check the virtual host in sink.rabbitmq.url, and this user's permissions in it"
	}
	return ""
}

// explain is err in one line, with what to do about a refusal.
func explain(err error) string {
	if mend := mendRefusal(err); mend != "" {
		return words(err) + "; " + mend
	}
	return words(err)
}
