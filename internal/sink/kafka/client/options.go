// What a client is configured with.

package client

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"go.uber.org/zap"
)

// Options configure a client.
type Options struct {
	conn.Options
	// Brokers are host:port of brokers of one cluster, the first to ask. The others are learnt from
	// their answers.
	Brokers []string
	// ConfirmTimeout is how long a broker may take to answer a produce request.
	ConfirmTimeout time.Duration
	// LoginTimeout ends run when the brokers have refused the login for so long and no connection
	// was ever made.
	LoginTimeout time.Duration
	Log          *zap.Logger
	// OnConnected is called when a connection to a node is open; again says that there was one
	// before. It may be nil.
	OnConnected func(node string, again bool)
	// OnMetadata is called after every answer to a question for metadata. It may be nil.
	OnMetadata func()
}
