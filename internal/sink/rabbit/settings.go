// RabbitMQ as a kind of sink: its section of the configuration, and how it is opened.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// Driver is RabbitMQ as a kind of sink.
func Driver() *sink.Driver {
	return &sink.Driver{
		Name: "rabbitmq", Broker: "RabbitMQ", Operation: "publish",
		Route: []sink.RoutePart{
			{Key: "exchange", Replay: "publish to this `EXCHANGE` instead", Limit: maxShortString, MayEmpty: true},
			{Key: "routing_key", Replay: "publish with this routing `KEY` instead", Limit: maxShortString, MayEmpty: true},
		},
		Reserved: OwnHeaders,
		// The AMQP protocol binding of CloudEvents 1.0.2. The next version prefers the prefix
		// cloudEvents_, which the SDKs for Go and Java do not read.
		CloudEvents: &sink.CloudEventsBinding{Prefix: "cloudEvents:", Taken: []string{"cloudEvents:*", "cloudEvents_*"}},
		Settings:    func() sink.Settings { return defaultSettings() },
		FixRefusal:  fixRejection,
	}
}

func fixRejection(reason sink.Reason, r *event.Route) string {
	switch reason { //nolint:exhaustive // the others need nothing of RabbitMQ's own
	case sink.Unroutable:
		return fmt.Sprintf("bind a queue for it: rabbitmqadmin declare binding source=%q destination=QUEUE routing_key=%q; if the exchange keeps or drops messages itself, set sink.rabbitmq.unroutable: ignore", r.Name, r.RoutingKey)
	case sink.NoExchange:
		return fmt.Sprintf("declare exchange %q, bind all queues, then run cdc-relay deferred retry --all", r.Name)
	case sink.NotAllowed:
		return fmt.Sprintf("add a pattern for exchange %q to sink.rabbitmq.allow.exchange, or for routing key %q to sink.rabbitmq.allow.routing_key", r.Name, r.RoutingKey)
	}
	return ""
}

// Open implements sink.Settings.
func (s *Settings) Open(o *sink.Opening) (sink.Opened, error) {
	cfg, err := s.config(o)
	if err != nil {
		return nil, err
	}
	if o.Encoder != nil {
		plain, err := newPlain(&cfg)
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
	cfg, err := s.config(o)
	if err != nil {
		return nil, err
	}
	cfg.Mirror = o.Mirror
	found := append(Check(ctx, cfg), s.OAuth.FindClear(section+"oauth.")...)
	return append(found, sink.FindAllowed(section, s.Templates())...), nil
}

func (s *Settings) config(o *sink.Opening) (Config, error) {
	out := Config{
		Dialer: conn.Dialer{
			ConfirmTimeout: o.ConfirmTimeout, ConnectionName: "cdc-relay/" + o.Slot, TLS: s.TLS.Load(section + "tls"),
			Logins: s.Logins(),
		},
		Exchange: s.Exchange, RoutingKey: s.RoutingKey, Allow: s.Allow.Bounds(), AllowHeaders: s.AllowHeaders, ContentType: s.ContentType, PlainConfig: o.PlainConfig,
		Lanes: o.Lanes, Declare: s.Declare, ExchangeType: s.ExchangeType, Bindings: s.Bindings, Unroutable: s.Unroutable, Log: o.Log,
		Connected: o.Connected, ChannelOpen: o.ChannelOpen, Confirms: o.Confirms,
	}
	if o.OneLane {
		out.Lanes = 1
	}
	var err error
	if out.URLs, err = s.Addresses(); err != nil {
		return out, err
	}
	for _, p := range s.Properties {
		switch p.Name {
		case contentType:
			out.ContentTypeColumn = p.Column
		case correlationID:
			out.CorrelationID = p.Column
		case priority:
			out.Priority = p.Column
		case expiration:
			out.Expiration = p.Column
		}
	}
	return out, nil
}

// Settings are where and how to publish with AMQP 0-9-1.
type Settings struct {
	URLs               []setting.Secret // the nodes of one cluster, at least one
	Username, Password setting.Secret   // used when the addresses carry none: see Logins
	OAuth              sink.OAuth       // instead of them
	Exchange           sink.Template
	RoutingKey         sink.Template
	Allow              Allow
	AllowHeaders       []string // of SteeringHeaders
	ContentType        string   // "": of the payload column's type
	Properties         []setting.NamedColumn
	Declare            bool
	ExchangeType       string
	Bindings           []Binding
	Unroutable         Unroutable
	TLS                sink.TLS

	userInURL bool // of every address, or of none
}

const section = "sink.rabbitmq."

func defaultSettings() *Settings {
	return &Settings{
		URLs:       []setting.Secret{setting.Plain("amqp://localhost:5672/")},
		Username:   setting.Plain("guest"),
		Password:   setting.Plain("guest"),
		Exchange:   sink.MustTemplate("outbox.events"),
		RoutingKey: sink.MustTemplate("{aggregate}.{type}"),
		Allow:      Allow{Exchange: sink.Everything(), RoutingKey: sink.Everything()},

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
	// refused together with addresses that carry a user, and with tokens
	login := func(k setting.Key) setting.Key {
		k.Applies = func() bool { return !s.userInURL && s.OAuth.TokenURL == "" }
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
		setting.Compat(setting.Choices("allow_headers", &s.AllowHeaders, SteeringHeaders)).
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
	return append(append(keys, s.TLS.Keys("tls.")...), s.OAuth.Keys("oauth.")...)
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

// Logins is what connections log in with. It is nil when the addresses carry that.
func (s *Settings) Logins() *sink.Logins {
	switch {
	case s.userInURL:
		return nil
	case s.OAuth.TokenURL != "":
		return s.OAuth.Tokens(section+"oauth.").Logins(section+"oauth.client_id", s.OAuth.ClientID)
	}
	return sink.SecretLogins(section, s.Username, s.Password)
}

// Addresses reads the addresses, with the passwords that they carry.
func (s *Settings) Addresses() (urls []string, err error) {
	for _, secret := range s.URLs {
		u, err := secret.Read(context.Background())
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
		s.TLS.RefuseUnused(v, "tls.", "has no effect on an amqp:// address; write amqps://")
	}
	s.TLS.Validate(v, "tls.")
	s.validateOAuth(v)
	if n := len(s.ContentType); n > maxShortString {
		v.FaultAt(section+"content_type", fmt.Errorf("has %d bytes, the protocol carries %d", n, maxShortString))
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
		value, err := secret.Read(context.Background())
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

func (s *Settings) validateOAuth(v *sink.Validation) {
	const at = section + "oauth.token_url"
	wanted := s.OAuth.TokenURL != ""
	s.OAuth.Validate(v, "oauth.", wanted, "oauth.token_url")
	if !wanted || v.IsFaulty(at) {
		return
	}
	if s.userInURL || v.IsGiven(section+"username") || v.IsGiven(section+"password") {
		v.FaultAt(at, errors.New("is given, and so is a user or a password; the token is both: one of the two"))
	}
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

const matchEveryKey = "#"

// arguments are the arguments of the binding, and of its queue when it is missing: RabbitMQ's own
// of queues begin with x-, and no binding's does but x-match.
func (b *Binding) arguments() (binding, queue amqp.Table) {
	binding, queue = amqp.Table{}, amqp.Table{}
	for _, a := range b.Arguments {
		of := binding
		if strings.HasPrefix(a.Name, "x-") && a.Name != "x-match" {
			of = queue
		}
		of[a.Name] = argumentValue(a.Column)
	}
	return binding, queue
}

// argumentValue is a value as AMQP has it.
func argumentValue(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	return text
}

func bindingsKey(at *[]Binding) setting.Key {
	text := setting.AnyText()
	one := setting.Form{
		"type": "object", "required": []string{"queue"}, "additionalProperties": false,
		"properties": setting.Form{"queue": text, "key": text, "arguments": setting.Form{"type": "object", "additionalProperties": text}},
	}
	return setting.Key{
		Name: "bindings", Kind: setting.List,
		Form: setting.AnyOf(setting.Form{"type": "array", "items": one}, setting.Form{"type": "string", "pattern": `\$\{`}),
		Set: func(r *setting.Reader, path string, n *setting.Node) {
			*at = nil
			if n.Kind != setting.List {
				r.Fault(n.Where, path, "wants a list of {queue, key, arguments}, has "+n.Kind.String())
				return
			}
			for i, item := range n.Items {
				if b, ok := readBinding(r, fmt.Sprintf("%s[%d]", path, i), item); ok {
					*at = append(*at, b)
				}
			}
		},
		Show: func() string {
			return setting.InlineList(*at, func(b Binding) string {
				arguments := make([]string, len(b.Arguments))
				for i, a := range b.Arguments {
					arguments[i] = strconv.Quote(a.Name) + ": " + setting.Quote(a.Column)
				}
				return "{queue: " + setting.Quote(b.Queue) + ", key: " + setting.Quote(b.Key) + ", arguments: {" + strings.Join(arguments, ", ") + "}}"
			})
		},
		// QUEUE=KEY, separated by commas
		FromVariable: func(variable, text string) *setting.Node {
			out := &setting.Node{Kind: setting.List, Where: setting.Place{Variable: variable}}
			for _, e := range setting.FromVariable(variable, text, setting.Mapping).Entries {
				queue := &setting.Node{Kind: setting.Scalar, Where: e.Where, Text: e.Name}
				out.Items = append(out.Items, &setting.Node{Kind: setting.Mapping, Where: e.Where, Entries: []setting.Entry{
					{Name: "queue", Where: e.Where, Value: queue}, {Name: "key", Where: e.Where, Value: e.Value},
				}})
			}
			return out
		},
	}
}

func readBinding(r *setting.Reader, path string, n *setting.Node) (b Binding, ok bool) {
	if n.Kind != setting.Mapping {
		r.Fault(n.Where, path, "wants a mapping of queue, key and arguments, has "+n.Kind.String())
		return b, false
	}
	before := len(r.Faults)
	b.Key = matchEveryKey
	for _, e := range n.Entries {
		at := path + "." + e.Name
		switch e.Name {
		case "queue":
			b.Queue, _ = r.Scalar(at, e.Value)
		case "key":
			b.Key, _ = r.Scalar(at, e.Value)
		case "arguments":
			b.Arguments = r.Named(at, e.Value, func(string) error { return nil })
		default:
			r.Fault(e.Where, at, "unknown key"+setting.OrNearest(e.Name, []string{"queue", "key", "arguments"}))
		}
	}
	switch {
	case len(r.Faults) > before:
	case b.Queue == "":
		r.Fault(n.Where, path, "wants the name of a queue")
	case len(b.Queue) > maxShortString || len(b.Key) > maxShortString:
		r.Fault(n.Where, path, fmt.Sprintf("has a queue or a key of more than %d bytes", maxShortString))
	}
	return b, len(r.Faults) == before
}

// What unroutable says.
const (
	unroutablePause  = "pause"
	unroutableIgnore = "ignore"
)

func unroutableKey(at *Unroutable) setting.Key {
	one := setting.AnyOf(setting.Form{"enum": []string{unroutablePause, unroutableIgnore}}, setting.Form{"type": "string", "pattern": `\$\{`})
	word := func(is bool) string {
		if is {
			return unroutableIgnore
		}
		return unroutablePause
	}
	read := func(r *setting.Reader, path, exchange string, n *setting.Node) (of UnroutableOf, ok bool) {
		text, ok := r.Scalar(path, n)
		if ok && text != unroutablePause && text != unroutableIgnore {
			r.Fault(n.Where, path, fmt.Sprintf("is %q, want one of %s, %s", text, unroutablePause, unroutableIgnore))
			ok = false
		}
		return UnroutableOf{Exchange: exchange, Ignore: text == unroutableIgnore}, ok
	}
	return setting.Key{
		Name: "unroutable", Kind: setting.Scalar, Values: "`pause` or `ignore`",
		Form: setting.AnyOf(one, setting.Form{"type": "object", "additionalProperties": one}),
		Set: func(r *setting.Reader, path string, n *setting.Node) {
			*at = nil
			if n.Kind != setting.Mapping {
				if of, ok := read(r, path, "*", n); ok {
					*at = Unroutable{of}
				}
				return
			}
			for _, e := range n.Entries {
				if of, ok := read(r, path+"."+e.Name, e.Name, e.Value); ok {
					*at = append(*at, of)
				}
			}
		},
		Show: func() string {
			switch u := *at; {
			case len(u) == 0:
				return unroutablePause
			case len(u) == 1 && u[0].Exchange == "*":
				return word(u[0].Ignore)
			}
			shown := make([]string, len(*at))
			for i, of := range *at {
				shown[i] = strconv.Quote(of.Exchange) + ": " + word(of.Ignore)
			}
			return "{" + strings.Join(shown, ", ") + "}"
		},
	}
}

// validateTopology reports what is declared in vain.
func (s *Settings) validateTopology(v *sink.Validation) {
	exchange, constant := s.Exchange.Constant()
	for _, key := range []string{"declare", "bindings"} {
		switch {
		case key == "declare" && !s.Declare, key == "bindings" && len(s.Bindings) == 0:
		case !constant:
			v.FaultAt(section+key, fmt.Errorf("has no effect on exchange %q, which each event names; declare those exchanges and their bindings at the broker", s.Exchange))
		case exchange == "":
			v.FaultAt(section+key, errors.New("has no effect on the default exchange, which is always there; leave it out"))
		}
	}
	switch kind := s.ExchangeType; {
	case kind == "" || len(kind) > maxShortString:
		v.FaultAt(section+"exchange_type", fmt.Errorf("wants 1 to %d bytes, such as topic, direct, fanout or headers", maxShortString))
	case kind != amqp.ExchangeTopic && !s.Declare:
		v.FaultAt(section+"exchange_type", errors.New("has no effect without sink.rabbitmq.declare: true"))
	}
}
