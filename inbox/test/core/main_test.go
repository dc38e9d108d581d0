package core

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m, servers.ExampleDatabase) }
