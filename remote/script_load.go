package remote

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Prepare loads the form of the script that the first run needs on every node that may need it, so that the
// callers of the first run do not wait for it. If loading fails, the first run tries again.
func (s *Script) Prepare(ctx context.Context) {
	if f := s.form(ctx); f == &s.script {
		_ = s.loadForm(ctx, f)
	}
}

// loadForm loads a form on every node. Callers that call it at the same time share one loading, and each waits
// for as long as its own context lasts. The loading has its own time limit, so that on a slow network a later
// run finds it done.
func (s *Script) loadForm(ctx context.Context, f *form) error {
	loaded := s.load.DoChan(f.verb, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), loadWithin)
		defer cancel()
		err := s.loadOnAll(ctx, f)
		if err == nil && f == &s.library {
			s.known.CompareAndSwap(nil, f)
		}
		return nil, err
	})
	select {
	case result := <-loaded:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

const loadWithin = time.Second

func (s *Script) loadOnAll(ctx context.Context, f *form) error {
	if s.nodes.cluster == nil {
		return f.loadInto(ctx, s.client)
	}
	var loaded, foreign atomic.Bool
	err := s.nodes.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		err := f.loadInto(ctx, node)
		if err == nil {
			loaded.Store(true)
		} else if errors.Is(err, ErrForeignLibrary) {
			foreign.Store(true)
		}
		return err
	})
	if foreign.Load() {
		return ErrForeignLibrary
	} else if loaded.Load() {
		return nil // a node that is down must not keep the others from working
	}
	return err
}

func (f *form) loadInto(ctx context.Context, node redis.Cmdable) error {
	if f.verb == "evalsha" {
		return node.ScriptLoad(ctx, f.source).Err()
	}
	// The library is looked for before it is sent: a server that wants a password first hangs up on a command
	// as long as that, without saying why.
	found, err := f.isLoaded(ctx, node)
	if found || err != nil {
		return err
	}
	err = node.FunctionLoad(ctx, f.source).Err()
	switch text, _ := serverError(err); {
	case !strings.Contains(text, "already exists"):
	case strings.HasPrefix(text, "Function"): // another library has a function of our name
		return ErrForeignLibrary
	default: // another instance was first
		_, err = f.isLoaded(ctx, node)
	}
	return err
}

// isLoaded reports whether the server has a library of our name. The library must have our code, too: somebody
// else may have put it there, since anyone can know the name.
func (f *form) isLoaded(ctx context.Context, node redis.Cmdable) (bool, error) {
	name := f.call[1].(string)
	libraries, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: name, WithCode: true}).Result()
	if err != nil || len(libraries) == 0 {
		return false, err
	}
	if len(libraries) != 1 || libraries[0].Code != f.source {
		return true, ErrForeignLibrary
	}
	return true, nil
}

// isMissing reports whether err says that the form of the script was not loaded.
func isMissing(err error) bool {
	text, ok := serverError(err)
	return ok && (strings.HasPrefix(text, "NOSCRIPT") || strings.HasPrefix(text, "Function not found"))
}

// isRefused reports whether err says that the server has no libraries (before Redis
// 7), or that this user may not run their functions.
func (f *form) isRefused(err error) bool {
	text, ok := serverError(err)
	return ok && f.verb == "fcall" &&
		(strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "fcall"))
}
