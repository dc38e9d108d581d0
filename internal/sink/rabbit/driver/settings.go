// The section sink.rabbitmq: its settings, defaults and checks.

package driver

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// Settings are where and how to publish with AMQP 0-9-1.
type Settings struct {
	URLs               []setting.Secret // the nodes of one cluster, at least one
	Username, Password setting.Secret   // used when the addresses carry none: see Credentials
	Exchange           sink.Template
	RoutingKey         sink.Template
	Allow              message.Allow
	AllowHeaders       []string // of message.SteeringHeaders
	ContentType        string   // "": of the payload column's type
	Properties         []setting.NamedColumn
	Declare            bool
	ExchangeType       string
	Bindings           []Binding
	Unroutable         rabbit.Unroutable
	TLS                sink.TLS

	userInURL bool // of every address, or of none
}

const section = "sink.rabbitmq."

func defaults() *Settings {
	return &Settings{
		URLs:       []setting.Secret{setting.Plain("amqp://localhost:5672/")},
		Username:   setting.Plain("guest"),
		Password:   setting.Plain("guest"),
		Exchange:   sink.MustTemplate("outbox.events"),
		RoutingKey: sink.MustTemplate("{aggregate}.{type}"),
		Allow:      message.Allow{Exchange: sink.Everything(), RoutingKey: sink.Everything()},

		ExchangeType: amqp.ExchangeTopic,
	}
}

// The properties that columns feed.
const (
	contentType   = "content_type"
	correlationID = "correlation_id"
	priority      = "priority"
	expiration    = "expiration"
)

var propertyNames = []string{contentType, correlationID, priority, expiration}

func checkProperty(name string) error {
	if !slices.Contains(propertyNames, name) {
		return errors.New("unknown property" + setting.OrNearest(name, propertyNames))
	}
	return nil
}

// Keys implements sink.Settings.
func (s *Settings) Keys() []setting.Key {
	// refused together with addresses that carry a user
	login := func(k setting.Key) setting.Key {
		k.Applies = func() bool { return !s.userInURL }
		return k
	}
	keys := []setting.Key{
		setting.Addresses("url", &s.URLs).
			Doc("The address of a node, or a list of the nodes of one cluster.",
				"`amqp://` or `amqps://`. Each connection begins with a random one. A user stands either in every address, or in `username` and `password`: [connections](rabbitmq.md#connections-tls-and-login)."),
		login(setting.Password("username", &s.Username)).
			Doc("The user, the same on all nodes."),
		login(setting.Password("password", &s.Password)).
			Doc("The password, usually `${file:/run/secrets/...}`."),
		sink.TemplateKey("exchange", &s.Exchange).
			Doc("Template of the exchange. `\"\"`: the default exchange."),
		sink.TemplateKey("routing_key", &s.RoutingKey).
			Doc("Template of the routing key."),
		sink.AllowKey("exchange", &s.Allow.Exchange).
			Doc("Patterns of the exchanges that events may go to.",
				"One pattern or a list. `*` stands for any characters. Events for another exchange wait as `not_allowed`: [what a row may set](rabbitmq.md#what-a-row-may-set)."),
		sink.AllowKey("routing_key", &s.Allow.RoutingKey).
			Doc("Patterns of the routing keys that events may have."),
		setting.Compat(setting.Choices("allow_headers", &s.AllowHeaders, message.SteeringHeaders)).
			Doc("Headers that steer RabbitMQ and that rows may set all the same, such as `CC`."),
		setting.Compat(setting.Text("content_type", &s.ContentType)).
			Doc("The property `content_type`. Empty: by the payload column's type."),
		setting.Compat(setting.Columns("properties", &s.Properties, setting.Form{"enum": propertyNames}, checkProperty)).
			Doc("`correlation_id`, `priority`, `expiration`, `content_type`: columns.",
				"Where the column of `content_type` is NULL, `sink.rabbitmq.content_type` holds."),
		setting.Compat(setting.Boolean("declare", &s.Declare)).
			Doc("Declare a missing exchange at the start.",
				"It is durable. A running relay never declares it again. Only one without placeholders."),
		setting.Compat(setting.Text("exchange_type", &s.ExchangeType)).
			Doc("The type of the exchange that `declare` makes."),
		bindingsKey(&s.Bindings).
			Doc("Queues that miss nothing: `{queue, key, arguments}`.",
				"They are bound at the start, and before a paused exchange resumes. A missing queue is made, durable. Without `key`: `#`. [Which arguments](rabbitmq.md#bindings)."),
		unroutableKey(&s.Unroutable).
			Doc("What becomes of an event that no queue takes.",
				"`pause`: it waits. `ignore`: it counts as delivered. For some exchanges only: `{reminders: ignore}`; a `*` in a name stands for any characters, and the first that matches decides. [When to ignore it](rabbitmq.md#exchanges-that-return-what-they-took)."),
	}
	return append(keys, s.TLS.Keys("tls.")...)
}

// Templates implements sink.Settings.
func (s *Settings) Templates() []sink.NamedTemplate {
	return []sink.NamedTemplate{
		{Key: "exchange", Template: &s.Exchange, Allow: s.Allow.Exchange},
		{Key: "routing_key", Template: &s.RoutingKey, Allow: s.Allow.RoutingKey},
	}
}

// Columns implements sink.Settings.
func (s *Settings) Columns() (names []string) {
	for _, p := range s.Properties {
		names = append(names, p.Column)
	}
	return names
}

// Credentials reads the user and the password again at every call. It is nil when the addresses
// carry them.
func (s *Settings) Credentials() func() (user, password string, err error) {
	if s.userInURL {
		return nil
	}
	return setting.Credentials(section, s.Username, s.Password)
}

// Addresses reads the addresses, with the passwords that they carry.
func (s *Settings) Addresses() (urls []string, err error) {
	for _, secret := range s.URLs {
		u, err := secret.Read()
		if err != nil {
			return nil, &event.Stop{Code: event.ExitUsage, Reason: "config", What: section + "url", Err: err}
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// Validate implements sink.Settings.
func (s *Settings) Validate(v *sink.Validation) {
	plaintext := s.validateURLs(v)
	if plaintext {
		s.TLS.Unused(v, "tls.", "has no effect on an amqp:// address; write amqps://")
	}
	s.TLS.Validate(v, "tls.")
	if n := len(s.ContentType); n > message.MaxShortString {
		v.FaultAt(section+"content_type", fmt.Errorf("has %d bytes, the protocol carries %d", n, message.MaxShortString))
	}
	s.validateTopology(v)
}

// validateURLs reports whether an address leaves TLS off.
func (s *Settings) validateURLs(v *sink.Validation) (plaintext bool) {
	const urls = section + "url"
	if len(s.URLs) == 0 && len(v.Faults) == 0 {
		v.FaultAt(urls, errors.New("names no broker"))
	}
	users := 0
	for _, secret := range s.URLs {
		value, err := secret.Read()
		if err != nil {
			v.FaultAt(urls, err)
			continue
		}
		u, err := parseAMQP(value)
		if err != nil {
			v.FaultAt(urls, err)
			continue
		}
		plaintext = plaintext || u.Scheme == "amqp"
		if u.User != nil {
			users++
		}
	}
	s.userInURL = users > 0
	switch {
	case users > 0 && (v.IsGiven(section+"username") || v.IsGiven(section+"password")):
		v.FaultAt(urls, errors.New("has a user in the address, and username or password is given too; one of the two"))
	case users > 0 && users < len(s.URLs):
		v.FaultAt(urls, errors.New("has a user in some addresses and not in others; in all, or none and username and password"))
	}
	return plaintext
}

// parseAMQP never quotes the address in its error: a password with a / or @ in it ends up anywhere.
func parseAMQP(value string) (*url.URL, error) {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return nil, errors.New("cannot be parsed as amqp://user:password@host:port/vhost (in a password / ? # @ : % are written %2F %3F %23 %40 %3A %25)")
	case u.Scheme == "":
		return nil, errors.New("has no amqp:// or amqps:// in front, want amqp://host:port/vhost")
	case u.Scheme != "amqp" && u.Scheme != "amqps":
		return nil, fmt.Errorf("starts with %q, want amqp:// or amqps://", u.Scheme+":")
	case u.Hostname() == "":
		return nil, errors.New("has no host, want amqp://host:port/vhost")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("has port %s, want 1 to 65535", port)
		}
	}
	if _, err := amqp.ParseURI(value); err != nil {
		return nil, errors.New("cannot be used: it has a space in it (written %20), or a parameter behind the ? that is no number")
	}
	return u, nil
}
