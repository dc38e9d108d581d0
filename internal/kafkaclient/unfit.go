// What a broker lacks that the options ask for.

package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// UnfitError says that a broker answers, and lacks what the options ask for. It passes only if
// the address leads to another broker, or this one is changed.
type UnfitError struct {
	Kind error // one of those below
	Text string
}

func (e *UnfitError) Error() string { return e.Text }

func (e *UnfitError) Unwrap() error { return e.Kind }

// The kinds of an UnfitError. A broker that wants a login may also just close the connection: then
// ErrWantsLogin is no UnfitError.
var (
	ErrWantsTLS    = errors.New("the broker answers with a TLS alert: the port expects TLS")
	ErrNoTLS       = errors.New("the port takes no TLS")
	ErrWantsLogin  = errors.New("the broker closed the connection at the first request, as one does that wants a login")
	ErrNoLogin     = errors.New("the listener takes no SASL login")
	ErrNoMechanism = errors.New("the listener does not have the mechanism")
	ErrTooOld      = errors.New("the broker is too old")
)

// ErrUnfit is in the error of Client.Run: every broker that was asked answered with an UnfitError,
// for LoginTimeout, and no connection was ever made.
var ErrUnfit = errors.New("the brokers lack what the configuration asks for")

// unfitPatience is for the question what a broker takes instead.
const unfitPatience = 3 * time.Second

func isUnfit(err error) bool { return errors.As(err, new(*UnfitError)) }

// takesPlaintext reports whether the broker answers without TLS, on a connection of its own. Kafka
// closes a connection that begins with TLS. So does a proxy that has no broker, or it answers in
// plain text.
func (c *Conn) takesPlaintext(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, unfitPatience)
	defer cancel()
	other, err := Dial(ctx, &DialOptions{ClientID: c.opts.ClientID}, c.Addr)
	if err == nil {
		other.Close()
	}
	return err == nil || errors.Is(err, ErrTooOld)
}

// wantsLogin asks a broker, on a connection of its own, which logins it has, after it has closed
// this one with err. It returns err when the broker does not say.
func (c *Conn) wantsLogin(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, unfitPatience)
	defer cancel()
	opts := *c.opts
	opts.SASL = nil
	other, failed := Dial(ctx, &opts, c.Addr)
	if failed != nil {
		return err
	}
	defer other.Close()
	res, failed := RoundTripAs[*saslhandshake.Response](ctx, other, DialTimeout, &saslhandshake.Request{Mechanism: "NONE"})
	if failed != nil || kafkago.Error(res.ErrorCode) != kafkago.UnsupportedSASLMechanism {
		return err
	}
	return &UnfitError{ErrWantsLogin, fmt.Sprintf("the listener wants a login, it has %s", strings.Join(res.Mechanisms, ", "))}
}
