// The Unix socket: the commands of root and of the relay's own user need no token.

package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// unixSocket is a listening socket and the file that it made.
type unixSocket struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// listenSocket makes the socket at path, which only root and the relay's own user may open. One on
// which nobody listens is left by a relay that was killed, and replaced. Anything else stays: it
// may be that of another relay on this host, as during its restart.
func listenSocket(path string) (*unixSocket, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("admin.socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("admin.socket: %s exists and is not a socket: remove it, or set another path", path)
	default:
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path)
		if err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("admin.socket: another process listens on %s: if it is another relay that stays, give each its own path", path)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("admin.socket: %w", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("admin.socket: remove the socket of a relay that has ended: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("admin.socket: the directory of %s does not exist: create it for the relay's user", path)
	}
	if err != nil {
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // by then the path may be another relay's
	s := &unixSocket{UnixListener: l, path: path}
	err = os.Chmod(path, 0o600) // whoever connects before is asked for its uid, too
	if err == nil {
		s.made, err = os.Lstat(path)
	}
	if err != nil {
		_ = l.Close() //nolint:errcheck // err says what is wrong
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	return s, nil
}

// isThere is false when the path was removed, or is another socket's.
func (s *unixSocket) isThere() bool {
	now, err := os.Lstat(s.path)
	return err == nil && os.SameFile(now, s.made)
}

// Close stops listening and removes the path if it is still this socket's.
func (s *unixSocket) Close() error {
	if s.isThere() {
		_ = os.Remove(s.path) //nolint:errcheck // one that stays is replaced by the next relay
	}
	return s.UnixListener.Close()
}

// socketEvery is how long until a socket that could not be made is tried again: the relay that has
// it may be one that stops. As often one that is served is looked for: it may have been removed,
// and nobody would reach the relay by it any more.
const socketEvery = 5 * time.Second

// runSocket serves the socket until ctx is done. What is wrong with the path is logged and tried
// again, for delivery does not depend on it.
func (s *Server) runSocket(ctx context.Context) {
	for {
		l, err := listenSocket(s.cfg.Socket)
		s.broken.report(s.cfg.Log, "admin.socket", err)
		if err == nil {
			err = s.serveSocket(ctx, l)
			s.broken.report(s.cfg.Log, "admin.socket", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.socketEvery):
		}
	}
}

// serveSocket serves a socket while its path is there.
func (s *Server) serveSocket(ctx context.Context, l *unixSocket) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		for l.isThere() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.socketEvery):
			}
		}
		cancel()
	})
	return s.serve(ctx, s.newHTTP(s.api, withPeer), l)
}

// withPeer notes who is at the other end of a connection.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	p := peer{uid: -1}
	if unix, ok := conn.(*net.UnixConn); ok {
		if uid, err := peerUID(unix); err == nil {
			p.uid = uid
		}
	}
	return context.WithValue(withConn(ctx, conn), peerKey{}, p)
}
