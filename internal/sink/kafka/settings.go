// Apache Kafka as a kind of sink: its section of the configuration, and how it is opened.

package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Driver describes Kafka as a kind of sink.
func Driver() *sink.Driver {
	return &sink.Driver{
		Name: "kafka", Broker: "Kafka", Operation: "send",
		Route: []sink.RoutePart{{
			Key: "topic", Replay: "publish to this `TOPIC` instead",
			Check: func(name string) error { return checkTopic(sink.MustTemplate(name)) },
		}},
		OwnLanes: true, AppendsCalls: true,
		Reserved: OwnHeaders,
		// the Kafka protocol binding of CloudEvents 1.0.2
		CloudEvents: &sink.CloudEventsBinding{Prefix: "ce_", ContentType: "content-type", Taken: []string{"ce_*", "content-type"}},
		Settings:    func() sink.Settings { return defaultSettings() },
		FixRefusal: func(reason sink.Reason, r *event.Route) string {
			switch reason { //nolint:exhaustive // the others need nothing of Kafka's own
			case sink.NoTopic:
				return fmt.Sprintf("create it: kafka-topics.sh --bootstrap-server BROKER --create --topic %s", r.Name)
			case sink.NotAllowed:
				return fmt.Sprintf("add a pattern for %q to sink.kafka.allow.topic", r.Name)
			}
			return ""
		},
	}
}

// Open implements sink.Settings.
func (s *Settings) Open(o *sink.Opening) (sink.Opened, error) {
	cfg := s.config(o)
	if o.Encoder != nil {
		plain, err := newPlain(&cfg.RecordConfig)
		if err != nil {
			return nil, err
		}
		if cfg.Encoder, err = o.Encoder(cfg.Columns, plain); err != nil {
			return nil, err
		}
	}
	return New(cfg)
}

// Check implements sink.Settings.
func (s *Settings) Check(ctx context.Context, o *sink.Opening) ([]sink.Finding, error) {
	cfg := s.config(o)
	if o.Mirror != nil {
		cfg.Mirror = string(o.Mirror.Name)
	}
	found := append(Check(ctx, cfg), s.SASL.OAuth.FindClear(saslSection+"oauth.")...)
	return append(found, sink.FindAllowed(section, s.Templates())...), nil
}

func (s *Settings) config(o *sink.Opening) Config {
	return Config{
		Brokers: s.Brokers, Compression: s.Compression, OneLane: o.OneLane, LoginFault: s.SASL.fault(),
		ReadBack:       s.ReadBack && o.Encoder == nil, // records of others have no position
		ConfirmTimeout: o.ConfirmTimeout, Log: o.Log, Connected: o.Connected, Confirms: o.Confirms,
		DialOptions:  kafkaclient.DialOptions{ClientID: "cdc-relay/" + o.Slot, TLS: s.TLSFiles(), SASL: s.Login()},
		RecordConfig: RecordConfig{Topic: s.Topic, Allow: s.Allow.Bounds(), PlainConfig: o.PlainConfig},
	}
}

// Settings is the section sink.kafka of the configuration.
type Settings struct {
	Brokers     []string // host:port of at least one broker; they name the others
	Topic       sink.Template
	Allow       sink.Allow // of topics
	Compression string     // none, gzip, snappy, lz4, zstd
	ReadBack    bool
	TLSEnabled  bool // nothing in a Kafka address can ask for TLS
	TLS         sink.TLS
	SASL        SASL
}

const section = "sink.kafka."

func defaultSettings() *Settings {
	return &Settings{
		Brokers:     []string{"localhost:" + kafkaPort},
		Topic:       sink.MustTemplate("outbox.event.{aggregate}"),
		Allow:       sink.Everything(),
		Compression: "none",
		ReadBack:    true,
	}
}

// kafkaPort is the port of a broker whose address has none.
const kafkaPort = "9092"

// Keys implements sink.Settings.
func (s *Settings) Keys() []setting.Key {
	enabled := setting.Boolean("tls.enabled", &s.TLSEnabled).
		Doc("TLS with the brokers.", "The other keys of `tls` are an error without it. So is an empty `tls: {}`.")
	enabled.SectionFault = "is empty, which would leave TLS off; write {enabled: true}, or leave it out"
	keys := []setting.Key{
		brokersKey("brokers", &s.Brokers).
			Doc("Some brokers of one cluster, as `host` or `host:port`.",
				"A list, or one text with commas. Without a port: 9092."),
		sink.TemplateKey("topic", &s.Topic).
			Doc("Template of the topic. The relay creates no topics."),
		sink.AllowKey("topic", &s.Allow).
			Doc("Patterns of the topics that events may go to.",
				"One pattern or a list. `*` stands for any characters. Events for another topic wait as `not_allowed`: [topics](kafka.md#topics-and-partitions)."),
		setting.Choice("compression", &s.Compression, "none", "gzip", "snappy", "lz4", "zstd").
			Doc("Compression of batches."),
		setting.Boolean("read_back", &s.ReadBack).
			Doc("After a crash, do not send again what is in Kafka already.",
				"Needs the right `Read` on the topics. Without it some events [arrive twice](kafka.md#after-a-crash)."),
		enabled,
	}
	return append(append(keys, s.TLS.Keys("tls.")...), s.SASL.keys()...)
}

// Templates implements sink.Settings.
func (s *Settings) Templates() []sink.NamedTemplate {
	return []sink.NamedTemplate{{Key: "topic", Template: &s.Topic, Allow: s.Allow, Check: checkTopic}}
}

// Columns implements sink.Settings.
func (s *Settings) Columns() []string { return nil }

// Login returns what a connection logs in with; it is called at every connect. It is nil when there
// is no login.
func (s *Settings) Login() func(ctx context.Context) (*kafkaclient.SASL, error) {
	return s.SASL.login()
}

// TLSFiles returns a function that reads the files again at every call. It is nil without TLS.
func (s *Settings) TLSFiles() func() (*tls.Config, error) {
	if !s.TLSEnabled {
		return nil
	}
	return s.TLS.Load(section + "tls")
}

// Validate implements sink.Settings.
func (s *Settings) Validate(v *sink.Validation) {
	if !s.TLSEnabled && !v.IsFaulty(section+"tls.enabled") {
		s.TLS.RefuseUnused(v, "tls.", "has no effect without tls.enabled: true")
	}
	s.TLS.Validate(v, "tls.")
	s.SASL.validate(v, s.TLSEnabled || v.IsFaulty(section+"tls.enabled"))
}

// brokersKey is the key of a list of addresses. One text may have several, separated by commas, as
// in Kafka's own bootstrap.servers.
func brokersKey(name string, at *[]string) setting.Key {
	return setting.Key{
		Name: name, Kind: setting.List,
		Form: setting.ListOrOne(setting.Form{"type": setting.PlainTypes, "minLength": 1}, 1),
		Set: func(r *setting.Reader, path string, n *setting.Node) {
			var read []string
			for _, item := range n.Values() {
				written, ok := r.Scalar(path, item)
				if !ok {
					continue
				}
				for address := range strings.SplitSeq(written, ",") {
					broker, err := parseBroker(strings.TrimSpace(address))
					if err != nil {
						r.Fault(item.Where, path, err.Error())
						continue
					}
					read = append(read, broker)
				}
			}
			if len(n.Values()) == 0 {
				r.Fault(n.Where, path, "names no broker")
			}
			*at = read
		},
		Show: func() string { return setting.InlineList(*at, setting.Quote) },
	}
}

// parseBroker reads host, host:port, [address] or [address]:port, and returns it with a port.
func parseBroker(s string) (string, error) {
	if strings.Contains(s, "://") {
		return "", fmt.Errorf("has %q, want host or host:port without a scheme: TLS is tls.enabled, the login is sasl", s)
	}
	host, port := s, kafkaPort
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	} else if strings.Contains(s, ":") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			host = ""
		}
	}
	if host == "" || strings.ContainsAny(host, "/@[] \t") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("has %q, want host or host:port", s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("has %q, whose port is not 1 to 65535", s)
	}
	return net.JoinHostPort(host, port), nil
}

var (
	placeholder = lazy.Regexp(`\{[^{}]*\}`)
	topicName   = lazy.Regexp(`^[a-zA-Z0-9._-]*$`)
)

// checkTopic refuses a template that can never give the name of a topic. The values of events are
// checked when they are published.
func checkTopic(t sink.Template) error {
	name, constant := t.Constant()
	text := placeholder().ReplaceAllString(t.String(), "")
	switch {
	case constant && (name == "" || name == "." || name == ".."):
		return fmt.Errorf("is %q, which cannot be the name of a topic", name)
	case !topicName().MatchString(text):
		return fmt.Errorf("is %q; a topic's name has only letters, digits, '.', '_' and '-'", t)
	case len(text) > maxTopic:
		return fmt.Errorf("has %d characters, the most a topic's name has is %d", len(text), maxTopic)
	}
	return nil
}
