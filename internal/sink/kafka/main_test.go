package kafka

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func TestMain(m *testing.M) { devenv.Main(m) }

// within is the timeout of requests that are answered.
const within = time.Minute
