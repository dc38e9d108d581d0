// The section sink.kafka: its settings, defaults and checks.

package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Kafka is where and how to publish to Apache Kafka.
type Kafka struct {
	Brokers     []string // host:port of at least one broker; they name the others
	Topic       sink.Template
	Compression string // none, gzip, snappy, lz4, zstd
	TLS         KafkaTLS
	SASL        SASL
}

// KafkaTLS is TLS, which no part of a Kafka address can ask for.
type KafkaTLS struct {
	Enabled bool
	TLS
}

// SASL is the login.
type SASL struct {
	Mechanism          string // plain, scram-sha-256, scram-sha-512; "": no login
	Username, Password Secret
}

// Credentials reads the user and the password again at every call. It is nil when there is no
// login.
func (k *Kafka) Credentials() func() (user, password string, err error) {
	if k.SASL.Mechanism == "" {
		return nil
	}
	return credentials("sink.kafka.sasl.", k.SASL.Username, k.SASL.Password)
}

func defaultKafka() *Kafka {
	return &Kafka{
		Brokers:     []string{"localhost:" + kafkaPort},
		Topic:       mustTemplate("outbox.event.{aggregate}"),
		Compression: "none",
	}
}

// kafkaPort is the port of a broker that is written without one.
const kafkaPort = "9092"

// brokers reads a list of addresses. One text may hold several, separated by commas, as Kafka's own
// bootstrap.servers.
func brokers(path string) field {
	return field{
		path: path,
		kind: document.List,
		form: listOrOne(jsonSchema{"type": plainTypes, "minLength": 1}, 1),
		set: func(l *loader, path string, n *document.Node) {
			var read []string
			for _, item := range n.Values() {
				written, ok := l.scalar(path, item)
				if !ok {
					continue
				}
				for address := range strings.SplitSeq(written, ",") {
					broker, err := parseBroker(strings.TrimSpace(address))
					if err != nil {
						l.fault(item.Where, path, err.Error())
						continue
					}
					read = append(read, broker)
				}
			}
			if len(n.Values()) == 0 {
				l.fault(n.Where, path, "names no broker")
			}
			l.cfg.Sink.Kafka.Brokers = read
		},
		show: func(c *Config) string { return inlineList(c.Sink.Kafka.Brokers, quote) },
	}
}

// parseBroker reads host, host:port, [address] or [address]:port and gives it with its port.
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

func (l *loader) validateKafka() {
	const section = "sink.kafka."
	k := l.cfg.Sink.Kafka
	l.validateTemplate(section+"topic", k.Topic)
	if l.cfg.Sink.Compat.Profile == "" {
		l.faultAt(section+"topic", checkTopic(k.Topic))
	}
	if !k.TLS.Enabled && !l.isFaulty(section+"tls.enabled") {
		l.withoutTLS(section+"tls.", &k.TLS.TLS, "has no effect without tls.enabled: true")
	}
	l.validateKey(section+"tls.key", &k.TLS.TLS)
	l.validateSASL(section+"sasl.", &k.SASL)
	if _, written := l.written["delivery.lanes"]; written {
		l.faultAt("delivery.lanes", errors.New("has no effect with sink.kafka, where each partition of a topic is a lane; leave it out"))
	}
}

func (l *loader) validateSASL(section string, s *SASL) {
	if l.isFaulty(section + "mechanism") {
		return
	}
	login := s.Mechanism != ""
	for _, part := range []struct {
		key   string
		value Secret
	}{{section + "username", s.Username}, {section + "password", s.Password}} {
		switch {
		case l.isFaulty(part.key):
		case login && !part.value.IsSet():
			l.faultAt(part.key, fmt.Errorf("is not set, and sasl.mechanism %s needs it", s.Mechanism))
		case !login && part.value.IsSet():
			l.faultAt(part.key, errors.New("has no effect without sasl.mechanism: plain, scram-sha-256 or scram-sha-512"))
		}
	}
}

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	topicName   = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)
)

// maxTopicName is the longest name a topic can have (org.apache.kafka.common.internals.Topic).
const maxTopicName = 249

// checkTopic refuses a template that can never give a valid topic name. The values of events are
// checked when they are published.
func checkTopic(t sink.Template) error {
	name, constant := t.Constant()
	text := placeholder.ReplaceAllString(t.String(), "")
	switch {
	case constant && (name == "" || name == "." || name == ".."):
		return fmt.Errorf("is %q, which cannot be the name of a topic", name)
	case !topicName.MatchString(text):
		return fmt.Errorf("is %q; a topic's name has only letters, digits, '.', '_' and '-'", t)
	case len(text) > maxTopicName:
		return fmt.Errorf("has %d characters, the most a topic's name has is %d", len(text), maxTopicName)
	}
	return nil
}
