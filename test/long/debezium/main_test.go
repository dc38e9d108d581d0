//go:build nightly

package debezium

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func TestMain(m *testing.M) { devenv.Main(m) }
