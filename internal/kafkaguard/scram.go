// The login by SCRAM: how much work a broker may ask for.

package kafkaguard

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
)

// maxRounds is six times the most that Kafka stores for a user, 16,384. So many take a tenth of a
// second, which nothing interrupts.
const maxRounds = 100_000

// Login bounds the work of a login by SCRAM; nil stays nil.
func Login(m sasl.Mechanism) sasl.Mechanism {
	if m == nil || !strings.HasPrefix(m.Name(), "SCRAM-") {
		return m
	}
	return login{m}
}

type login struct{ sasl.Mechanism }

func (l login) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	s, first, err := l.Mechanism.Start(ctx)
	return conversation{s}, first, err
}

type conversation struct{ sasl.StateMachine }

func (c conversation) Next(ctx context.Context, challenge []byte) (done bool, response []byte, err error) {
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
