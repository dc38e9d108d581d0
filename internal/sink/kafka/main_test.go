package kafka

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// within is the timeout of requests that are answered.
const within = time.Minute
