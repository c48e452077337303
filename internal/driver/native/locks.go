package native

import (
	"context"
	"sync"
)

// locks serialises what is done to one id. A waiter leaves when its context
// ends; entries go with their last user.
type locks struct {
	mu sync.Mutex
	m  map[string]*idLock
}

type idLock struct {
	token chan struct{} // holds one token while nobody has the lock
	users int
}

// lock waits for the id and gives the function that frees it.
func (l *locks) lock(ctx context.Context, id string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.m == nil {
		l.m = map[string]*idLock{}
	}
	e := l.m[id]
	if e == nil {
		e = &idLock{token: make(chan struct{}, 1)}
		e.token <- struct{}{}
		l.m[id] = e
	}
	e.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(l.m, id)
		}
	}
	select {
	case <-e.token:
		return func() { e.token <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
