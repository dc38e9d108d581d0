// The mechanism OAUTHBEARER (RFC 7628, KIP-255), with the extensions of KIP-342.

package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
)

// bearer logs in with a token. kafka-go has no such mechanism.
type bearer struct {
	token      string
	extensions map[string]string
}

func (b bearer) Name() string { return "OAUTHBEARER" }

// Start makes the client's first message, and only one.
func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	if strings.ContainsFunc(b.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, nil, errors.New("the token has a character that no token has")
	}
	message := "n,,\x01auth=Bearer " + b.token + "\x01"
	for _, name := range slices.Sorted(maps.Keys(b.extensions)) {
		message += name + "=" + b.extensions[name] + "\x01"
	}
	return bearerAnswer{}, []byte(message + "\x01"), nil
}

// bearerAnswer reads the answer to it: nothing, or why the token is refused.
type bearerAnswer struct{}

func (bearerAnswer) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	const most = 300 // bytes
	return true, nil, fmt.Errorf("the broker refuses the token: %.*q", most, challenge)
}
