// Stdout as a kind of sink.

package stdout

import (
	"context"
	"os"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Driver is the driver.
func Driver() *sink.Driver {
	return &sink.Driver{
		Name: "stdout", Operation: "write", NoHeaders: true,
		Does:     "`{}`: write each event as a line of JSON to stdout, in commit order.",
		Settings: func() sink.Settings { return settings{} },
	}
}

// settings are none: naming the sink is all there is to say.
type settings struct{}

func (settings) Keys() []setting.Key                                          { return nil }
func (settings) Validate(*sink.Validation)                                    {}
func (settings) Templates() []sink.NamedTemplate                              { return nil }
func (settings) Columns() []string                                            { return nil }
func (settings) Check(context.Context, *sink.Opening) ([]sink.Finding, error) { return nil, nil }

// Open makes the sink, which prints lines of our own or, with a profile, records.
func (settings) Open(o *sink.Opening) (sink.Opened, error) {
	lines := NewLines(o.Traceparent)
	if o.Encoder == nil {
		return New(os.Stdout, lines), nil
	}
	encoder, err := o.Encoder(o.Columns, lines)
	if err != nil {
		return nil, err
	}
	return New(os.Stdout, NewRecords(encoder, lines)), nil
}

// Status implements sink.Opened.
func (s *Sink) Status() (out sink.Status) {
	out.Up, out.Why = s.Up()
	return out
}

// SentTo implements sink.Opened.
func (s *Sink) SentTo(ev *event.Event) sink.Sent {
	return sink.Sent{Name: string(s.Route(ev).Name), Partition: -1}
}
