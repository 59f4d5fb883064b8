package sysdump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// page is the number of objects that the API server sends in one answer.
const page = 500

// resource is a list of the API.
type resource struct {
	group     string // "/api/v1" or "/apis/<group>/<version>"
	plural    string
	namespace string // "": all, or the resource has none
	fields    string // a field selector
	mayLack   bool   // a cluster need not have the kind
}

func (r *resource) path() string {
	if r.namespace == "" {
		return r.group + "/" + r.plural
	}
	return r.group + "/namespaces/" + r.namespace + "/" + r.plural
}

// listOf is the task that writes what keep returns of each object. T has the allowed fields; keep may return nil. Only
// one object is in memory at a time, however large the answer is.
func listOf[T any](c *collector, name string, from resource, keep func(*T) any) task {
	return task{name, func(ctx context.Context, out io.Writer) error {
		w := &objectWriter{out: out, most: c.bounds.objects}
		err := c.pages(ctx, &from, func(raw json.RawMessage) error {
			object := new(T)
			if err := utiljson.Unmarshal(raw, object); err != nil {
				w.unreadable++ // the error may have a value of the object
				return nil
			}
			if kept := keep(object); kept != nil {
				return w.add(kept)
			}
			return nil
		})
		if from.mayLack && apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: the API server does not serve %s", ErrNone, from.plural)
		}
		return w.end(err)
	}}
}

// objectWriter writes a list in JSON, with one object on each line.
type objectWriter struct {
	out        io.Writer
	most       int
	written    int
	unreadable int
}

func (w *objectWriter) add(object any) error {
	if w.written == w.most {
		return fmt.Errorf("the rest is missing: the file has %d objects, which is the most", w.most)
	}
	line, err := json.Marshal(object)
	if err != nil {
		return err
	}
	begin := ",\n"
	if w.written == 0 {
		begin = "[\n"
	}
	w.written++
	_, err = fmt.Fprintf(w.out, "%s%s", begin, line)
	return err
}

// end ends the list after an error, or after its last object.
func (w *objectWriter) end(err error) error {
	text := "\n]\n"
	if w.written == 0 {
		text = "[]\n"
	}
	if w.written > 0 || err == nil {
		_, ended := io.WriteString(w.out, text)
		err = errors.Join(err, ended)
	}
	if w.unreadable > 0 {
		err = errors.Join(err, fmt.Errorf("%d objects do not have the form of their kind", w.unreadable))
	}
	return err
}

// pages reads a list page by page, and calls each with every object.
func (c *collector) pages(ctx context.Context, r *resource, each func(json.RawMessage) error) error {
	for next := ""; ; {
		request := c.Client.Get().AbsPath(r.path()).SetHeader("Accept", "application/json").
			Param("limit", strconv.Itoa(page))
		if next != "" {
			request.Param("continue", next)
		}
		if r.fields != "" {
			request.Param("fieldSelector", r.fields)
		}
		body, err := request.Stream(ctx)
		if err != nil {
			return err
		}
		meta, err := decodeList(body, each)
		if err := errors.Join(err, body.Close()); err != nil {
			return err
		}
		if next = meta.Continue; next == "" {
			return nil
		}
	}
}

// decodeList reads a list in JSON, object by object.
func decodeList(text io.Reader, each func(json.RawMessage) error) (meta metav1.ListMeta, err error) {
	decoder := json.NewDecoder(text)
	var raw json.RawMessage // one buffer for all objects
	if err := expect(decoder, '{'); err != nil {
		return meta, err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return meta, cut(err)
		}
		switch key {
		case "items":
			err = decodeItems(decoder, &raw, each)
		case "metadata":
			err = decoder.Decode(&meta)
		default:
			err = decoder.Decode(&raw)
		}
		if err != nil {
			return meta, cut(err)
		}
	}
	return meta, expect(decoder, '}')
}

func decodeItems(decoder *json.Decoder, raw *json.RawMessage, each func(json.RawMessage) error) error {
	token, err := decoder.Token()
	if err != nil || token == nil { // null: an empty list
		return err
	}
	if token != json.Delim('[') {
		return errors.New("the answer is not a list")
	}
	for decoder.More() {
		if err := decoder.Decode(raw); err != nil {
			return err
		}
		if err := each(*raw); err != nil {
			return err
		}
	}
	return expect(decoder, ']')
}

func expect(decoder *json.Decoder, expected json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != expected {
		err = errors.New("the answer is not a list")
	}
	return cut(err)
}

// cut names an answer that ends early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the rest is missing: %w", io.ErrUnexpectedEOF)
	}
	return err
}
