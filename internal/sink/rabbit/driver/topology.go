// The keys about exchange and queues: bindings and unroutable.

package driver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// Binding is an item of the list bindings, as it is written.
type Binding struct {
	Queue, Key string
	Arguments  []setting.NamedColumn // each name with its value
}

const everyKey = "#"

// declared splits the arguments: RabbitMQ's own of queues begin with x-, and no binding's does but
// x-match.
func (b *Binding) declared() rabbit.Binding {
	out := rabbit.Binding{Queue: b.Queue, Key: b.Key, QueueArguments: amqp.Table{}, Arguments: amqp.Table{}}
	for _, a := range b.Arguments {
		of := out.Arguments
		if strings.HasPrefix(a.Name, "x-") && a.Name != "x-match" {
			of = out.QueueArguments
		}
		of[a.Name] = typed(a.Column)
	}
	return out
}

// typed is a value as AMQP has it.
func typed(text string) any {
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
	b.Key = everyKey
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
	case len(b.Queue) > message.MaxShortString || len(b.Key) > message.MaxShortString:
		r.Fault(n.Where, path, fmt.Sprintf("has a queue or a key of more than %d bytes", message.MaxShortString))
	}
	return b, len(r.Faults) == before
}

// What unroutable says.
const (
	pause  = "pause"
	ignore = "ignore"
)

func unroutableKey(at *rabbit.Unroutable) setting.Key {
	one := setting.AnyOf(setting.Form{"enum": []string{pause, ignore}}, setting.Form{"type": "string", "pattern": `\$\{`})
	word := func(is bool) string {
		if is {
			return ignore
		}
		return pause
	}
	read := func(r *setting.Reader, path, exchange string, n *setting.Node) (of rabbit.UnroutableOf, ok bool) {
		text, ok := r.Scalar(path, n)
		if ok && text != pause && text != ignore {
			r.Fault(n.Where, path, fmt.Sprintf("is %q, want one of %s, %s", text, pause, ignore))
			ok = false
		}
		return rabbit.UnroutableOf{Exchange: exchange, Ignore: text == ignore}, ok
	}
	return setting.Key{
		Name: "unroutable", Kind: setting.Scalar, Values: "`pause` or `ignore`",
		Form: setting.AnyOf(one, setting.Form{"type": "object", "additionalProperties": one}),
		Set: func(r *setting.Reader, path string, n *setting.Node) {
			*at = nil
			if n.Kind != setting.Mapping {
				if of, ok := read(r, path, "*", n); ok {
					*at = rabbit.Unroutable{of}
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
				return pause
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
	case kind == "" || len(kind) > message.MaxShortString:
		v.FaultAt(section+"exchange_type", fmt.Errorf("wants 1 to %d bytes, such as topic, direct, fanout or headers", message.MaxShortString))
	case kind != amqp.ExchangeTopic && !s.Declare:
		v.FaultAt(section+"exchange_type", errors.New("has no effect without sink.rabbitmq.declare: true"))
	}
}
