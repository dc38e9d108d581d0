// The login by SASL, with Kafka's requests SaslHandshake and SaslAuthenticate, and a bound for the
// work that a broker may ask for.

package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// SASL says how a connection logs in.
type SASL struct {
	Mechanism          string            // plain, scram-sha-256, scram-sha-512 or oauthbearer
	Username, Password string            // oauthbearer has no user, and its token is the password
	Extensions         map[string]string // of oauthbearer
	// Refused is called with the error when the broker refuses the login, and returns the one to
	// report; it may be nil.
	Refused func(error) error
	Own     sasl.Mechanism // the caller's own mechanism, instead of the fields above
}

// ErrLogin says that a broker has refused the login. A certificate that is refused is an error of
// TLS instead.
var ErrLogin = errors.New("login refused")

// mechanism returns the client's side of the login. Its errors do not quote the user or the
// password, as errors of the libraries do.
func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s.Own != nil {
		return boundRounds(s.Own), nil
	}
	if s.Mechanism != "oauthbearer" && strings.ContainsRune(s.Username+s.Password, 0) {
		return nil, fmt.Errorf("%w: user or password has a character of code 0", ErrLogin)
	}
	var algorithm scram.Algorithm
	switch s.Mechanism {
	case "plain":
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case "scram-sha-256":
		algorithm = scram.SHA256
	case "scram-sha-512":
		algorithm = scram.SHA512
	case "oauthbearer":
		return bearer{s.Password, s.Extensions}, nil
	default:
		return nil, fmt.Errorf("mechanism %q is not one of plain, scram-sha-256, scram-sha-512, oauthbearer", s.Mechanism)
	}
	m, err := scram.Mechanism(algorithm, s.Username, s.Password)
	if err != nil {
		return nil, fmt.Errorf("%w: user or password has a character that SASLprep (RFC 4013) forbids", ErrLogin)
	}
	return boundRounds(m), nil
}

// login logs in on a new connection.
func (c *Conn) login(ctx context.Context, s *SASL) error {
	mechanism, err := s.mechanism()
	if err != nil {
		return err
	}
	if c.Versions[protocol.SaslHandshake] < 1 {
		return &UnfitError{ErrTooOld, "the broker has no SaslHandshake v1: Kafka 1.0 or newer is needed"}
	}
	res, err := RoundTripAs[*saslhandshake.Response](ctx, c, DialTimeout, &saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return err
	}
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
	case kafkago.UnsupportedSASLMechanism:
		return fmt.Errorf("%w: %w", ErrLogin, &UnfitError{
			ErrNoMechanism, fmt.Sprintf("mechanism %s is not enabled, the listener has %s", mechanism.Name(), strings.Join(res.Mechanisms, ", ")),
		})
	case kafkago.IllegalSASLState:
		return fmt.Errorf("%w: %w", &UnfitError{ErrNoLogin, ErrNoLogin.Error()}, code)
	default:
		return code
	}
	if err = c.converse(ctx, mechanism); s.Refused != nil && errors.Is(err, ErrLogin) {
		return s.Refused(err)
	}
	return err
}

// converse exchanges the messages of the mechanism.
func (c *Conn) converse(ctx context.Context, mechanism sasl.Mechanism) error {
	session, response, err := mechanism.Start(ctx)
	if err != nil {
		return fmt.Errorf("begin %s: %w", mechanism.Name(), err)
	}
	for done := false; !done; {
		challenge, err := c.authenticate(ctx, response)
		if err != nil {
			return err
		}
		if done, response, err = session.Next(ctx, challenge); err != nil {
			return fmt.Errorf("%w: %w", ErrLogin, err)
		}
	}
	return nil
}

// authenticate sends one message of the mechanism and returns the broker's answer to it.
func (c *Conn) authenticate(ctx context.Context, response []byte) (challenge []byte, err error) {
	res, err := RoundTripAs[*saslauthenticate.Response](ctx, c, DialTimeout, &saslauthenticate.Request{AuthBytes: response})
	if err != nil {
		return nil, err
	}
	switch kafkago.Error(res.ErrorCode) {
	case 0:
	case kafkago.SASLAuthenticationFailed:
		return nil, fmt.Errorf("%w: %s", ErrLogin, ErrorText(res.ErrorCode, res.ErrorMessage))
	default:
		return nil, errors.New(ErrorText(res.ErrorCode, res.ErrorMessage))
	}
	if life := time.Duration(res.SessionLifetimeMs) * time.Millisecond; life > 0 {
		// connections.max.reauth.ms: the broker drops the connection at the first request after
		// this time. So a new connection is made earlier: a request that is lost with the old one
		// would be in doubt.
		c.Expires = time.Now().Add(life - life/10)
	}
	return res.AuthBytes, nil
}

// maxRounds is six times the most rounds that Kafka stores for a user, 16,384. So many rounds take
// a tenth of a second, which nothing can interrupt.
const maxRounds = 100_000

// boundRounds wraps a mechanism so that a broker cannot ask for more than maxRounds rounds of
// SCRAM.
func boundRounds(m sasl.Mechanism) sasl.Mechanism {
	if !strings.HasPrefix(m.Name(), "SCRAM-") {
		return m
	}
	return boundedLogin{m}
}

type boundedLogin struct{ sasl.Mechanism }

func (l boundedLogin) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	s, first, err := l.Mechanism.Start(ctx)
	return boundedConversation{s}, first, err
}

type boundedConversation struct{ sasl.StateMachine }

func (c boundedConversation) Next(ctx context.Context, challenge []byte) (done bool, response []byte, err error) {
	for part := range strings.SplitSeq(string(challenge), ",") {
		rounds, is := strings.CutPrefix(part, "i=")
		if !is {
			continue
		}
		if n, err := strconv.ParseUint(rounds, 10, 64); err != nil || n > maxRounds {
			return true, nil, fmt.Errorf("the broker asks for %.20s rounds of SCRAM: %d is the most", rounds, maxRounds)
		}
	}
	return c.StateMachine.Next(ctx, challenge)
}
