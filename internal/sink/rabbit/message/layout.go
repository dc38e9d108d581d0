// The configuration of messages: which encoder makes their records, and what is shown of where they
// go.

package message

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Layout has the encoder, and what is known of all its messages. It is immutable.
type Layout struct {
	encoder               sink.Encoder
	exchangeOrTopic, dest uint64 // the digests of constants, else 0
	exchange, routingKey  shown
	allow                 *Allow // nil: an event may go everywhere
	Large                 *sink.Large
}

// shown is what people see of a name.
type shown struct {
	sink.Template
	personal bool // it is made from ordering keys: its values are not shown
}

// Allow are the patterns of where messages may go.
type Allow struct{ Exchange, RoutingKey sink.Allow }

// Bounds are the patterns without those that allow everything.
func (a Allow) Bounds() Allow { return Allow{a.Exchange.Bounds(), a.RoutingKey.Bounds()} }

// Config says how an event becomes a message.
type Config struct {
	// Encoder makes the records of the messages; nil: the relay's own format, NewPlain of this
	// configuration.
	Encoder sink.Encoder
	// Exchange and RoutingKey say where messages go, for people and for the checks of a start. In
	// the relay's own format they make the names; any other encoder makes its own.
	Exchange, RoutingKey sink.Template
	Allow                Allow

	// The rest is of the relay's own format.

	// AllowHeaders are the names of SteeringHeaders that a row may use.
	AllowHeaders []string
	sink.PlainConfig
	// ContentType is that of all messages for which its column has none; "": the payload's kind.
	ContentType string
	// The columns of these properties, "" for none.
	ContentTypeColumn, CorrelationID, Priority, Expiration string
}

// NewLayout makes the layout of a configuration.
func NewLayout(cfg *Config) (Layout, error) {
	l := Layout{encoder: cfg.Encoder, Large: new(sink.Large), exchange: shownAs(cfg.Exchange), routingKey: shownAs(cfg.RoutingKey)}
	if len(cfg.Allow.Exchange)+len(cfg.Allow.RoutingKey) > 0 {
		l.allow = &cfg.Allow
	}
	if l.encoder == nil {
		plain, err := NewPlain(cfg)
		if err != nil {
			return l, err
		}
		l.encoder = plain
	}
	if of := l.encoder.Traits(); of.Exchange != nil {
		l.exchangeOrTopic, l.dest = digests(of.Exchange, of.RoutingKey)
	}
	return l, nil
}

func shownAs(t sink.Template) shown {
	return shown{t, slices.Contains(t.Uses(), "key")}
}
