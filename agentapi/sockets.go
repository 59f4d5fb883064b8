package agentapi

import (
	"net"
	"os"
	"syscall"
)

// maxSockets is how many sockets one message brings: one for each interface of a pod.
const maxSockets = maxPosition

// writeWith writes one message, and passes open sockets with its first byte. The peer gets copies.
func writeWith(conn net.Conn, message any, sockets []int) error {
	if len(sockets) == 0 {
		return Write(conn, message)
	}
	line, err := encode(message)
	if err != nil {
		return err
	}
	sent, _, err := conn.(*net.UnixConn).WriteMsgUnix(line, syscall.UnixRights(sockets...), nil)
	if err == nil && sent < len(line) { // the buffer of the socket is full: the rest follows without the sockets
		_, err = conn.Write(line[sent:])
	}
	return err
}

// Inbox reads from a plugin's connection, and keeps the sockets that come with the messages.
type Inbox struct {
	Conn    *net.UnixConn
	sockets []*os.File
}

// Read reads bytes of messages.
func (b *Inbox) Read(text []byte) (int, error) {
	control := make([]byte, syscall.CmsgSpace(4*maxSockets))
	n, size, _, _, err := b.Conn.ReadMsgUnix(text, control)
	if err != nil {
		return max(n, 0), err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:size])
	if err != nil {
		return n, nil // the message has no sockets, then
	}
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			_ = syscall.SetNonblock(fd, true) // for deadlines
			b.sockets = append(b.sockets, os.NewFile(uintptr(fd), "socket"))
		}
	}
	return n, nil
}

// Take returns the sockets that have come, which are the caller's to close.
func (b *Inbox) Take() []*os.File {
	sockets := b.sockets
	b.sockets = nil
	return sockets
}

// CloseSockets closes sockets. Closing a packet socket takes a grace period of the kernel.
func CloseSockets(sockets []*os.File) {
	for _, s := range sockets {
		_ = s.Close()
	}
}
