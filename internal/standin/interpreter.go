package standin

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	interpreted "github.com/yuin/gopher-lua"

	"github.com/tierlimit/tierlimit/lua"
)

// interpreter runs the decision script. Miniredis makes an interpreter for every call, with all of Lua's
// libraries, and runs the whole script in it to define its functions. That takes several times as long as
// a decision. This interpreter does so once, as Redis 7 does for a function library.
type interpreter struct {
	server *server.Server
	sha    string

	mu     sync.Mutex // held while the script runs, because others must not see its intermediate states
	state  *interpreted.LState
	decide *interpreted.LFunction
}

func newInterpreter(s *server.Server) (*interpreter, error) {
	i := &interpreter{
		server: s,
		sha:    redis.NewScript(lua.DecideScript()).Hash(),
		state:  interpreted.NewState(),
	}
	commands := i.state.NewTable()
	for name, f := range map[string]interpreted.LGFunction{
		"call":              i.call,
		"pcall":             i.pcall,
		"register_function": func(l *interpreted.LState) int { i.decide = l.CheckFunction(2); return 0 },
	} {
		commands.RawSetString(name, i.state.NewFunction(f))
	}
	i.state.SetGlobal("redis", commands)
	_, library, _ := strings.Cut(lua.DecideLibrary("standin"), "\n") // without the first line, which names the library
	if err := i.state.DoString(library); err != nil {
		return nil, fmt.Errorf("the decision script: %w", err)
	}
	return i, nil
}

// hook runs the script if the command calls it, and leaves all other commands to miniredis.
func (i *interpreter) hook(peer *server.Peer, command string, args ...string) bool {
	if command != "EVALSHA" || len(args) < 2 || args[0] != i.sha {
		return false
	}
	keys, err := strconv.Atoi(args[1])
	if err != nil || keys < 0 || keys > len(args)-2 {
		return false // miniredis reports the error
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	list := func(args []string) *interpreted.LTable {
		t := i.state.CreateTable(len(args), 0)
		for _, arg := range args {
			t.Append(interpreted.LString(arg))
		}
		return t
	}
	err = i.state.CallByParam(interpreted.P{Fn: i.decide, NRet: 1, Protect: true}, list(args[2:2+keys]), list(args[2+keys:]))
	if err != nil {
		peer.WriteError("ERR running the script: " + strings.ReplaceAll(err.Error(), "\n", " "))
		return true
	}
	peer.WriteBulk(i.state.Get(-1).String())
	i.state.Pop(1)
	return true
}

// call implements redis.call: an error ends the script.
func (i *interpreter) call(l *interpreted.LState) int {
	reply, err := i.command(l)
	if err != nil {
		l.RaiseError("%s", err.Error())
	}
	l.Push(value(l, reply))
	return 1
}

// pcall implements redis.pcall: an error is returned as a table.
func (i *interpreter) pcall(l *interpreted.LState) int {
	reply, err := i.command(l)
	if err != nil {
		t := l.NewTable()
		t.RawSetString("err", interpreted.LString(err.Error()))
		l.Push(t)
		return 1
	}
	l.Push(value(l, reply))
	return 1
}

func (i *interpreter) command(l *interpreted.LState) (any, error) {
	args := make([]string, l.GetTop())
	for n := range args {
		args[n] = l.CheckString(n + 1)
	}
	var reply bytes.Buffer
	w := bufio.NewWriterSize(&reply, 64)
	i.server.Dispatch(server.NewPeer(w), args)
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return server.ParseReply(bufio.NewReaderSize(&reply, 64))
}

// value returns a reply as a Lua value.
func value(l *interpreted.LState, reply any) interpreted.LValue {
	switch r := reply.(type) {
	case nil:
		return interpreted.LFalse
	case int:
		return interpreted.LNumber(r)
	case int64:
		return interpreted.LNumber(r)
	case []byte:
		return interpreted.LString(r)
	case string:
		return interpreted.LString(r)
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, element := range r {
			t.Append(value(l, element))
		}
		return t
	case server.Simple:
		t := l.NewTable()
		t.RawSetString("ok", interpreted.LString(r))
		return t
	}
	return interpreted.LString(fmt.Sprint(reply))
}
