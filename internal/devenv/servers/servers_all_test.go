//go:build testall

package servers

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// A machine has room for some thousands of segments, and a run of all tests starts some hundred
// servers.
func TestClosedPostgresLeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	p, err := pgserver.Start(await.Context(t), pgserver.Options{})
	await.Must(t, err)
	defer func() { await.Must(t, p.Close()) }()
	id, ok := p.Segment()
	var is unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &is); !ok || err != nil || is.Nattch == 0 {
		t.Fatalf("the running server has no segment %d: %v", id, err)
	}
	await.Must(t, p.Close())
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &is); err == nil {
		t.Errorf("segment %d is left behind", id)
	}
}
