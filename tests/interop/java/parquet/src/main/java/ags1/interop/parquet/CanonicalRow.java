package ags1.interop.parquet;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DateLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.IntLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.JsonLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.ListLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.MapLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.StringLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;

/**
 * The canonical text of a row: JSON without white space, in the order of the schema, the same for every reader.
 *
 * <p>parquet_peer.py describes the form and makes the same text from Arrow data.
 */
final class CanonicalRow {
  private static final HexFormat HEX = HexFormat.of();
  private static final long NANOS_PER_DAY = 86_400_000_000_000L;
  private static final long JULIAN_DAY_OF_EPOCH = 2_440_588L;

  private final StringBuilder text = new StringBuilder();

  private CanonicalRow() {}

  static String of(Group row) {
    CanonicalRow canonical = new CanonicalRow();
    canonical.struct(row);
    return canonical.text.toString();
  }

  private void struct(Group group) {
    GroupType type = group.getType();
    text.append('{');
    for (int i = 0; i < type.getFieldCount(); i++) {
      separate(i);
      string(type.getFieldName(i));
      text.append(':');
      field(group, i);
    }
    text.append('}');
  }

  private void field(Group group, int index) {
    Type type = group.getType().getType(index);
    int count = group.getFieldRepetitionCount(index);
    if (!type.isRepetition(Type.Repetition.REPEATED)) {
      if (count == 0) {
        text.append("null");
      } else {
        value(group, index, 0);
      }
      return;
    }
    text.append('[');
    for (int i = 0; i < count; i++) {
      separate(i);
      value(group, index, i);
    }
    text.append(']');
  }

  private void value(Group group, int field, int index) {
    Type type = group.getType().getType(field);
    if (type.isPrimitive()) {
      primitive(group, field, index, type.asPrimitiveType());
      return;
    }
    Group value = group.getGroup(field, index);
    LogicalTypeAnnotation annotation = type.getLogicalTypeAnnotation();
    if (annotation instanceof ListLogicalTypeAnnotation) {
      list(value);
    } else if (annotation instanceof MapLogicalTypeAnnotation) {
      map(value);
    } else {
      struct(value);
    }
  }

  /** The three-level form wraps each element in a group of one field; older forms repeat the element itself. */
  private void list(Group value) {
    Type repeated = value.getType().getType(0);
    boolean wrapped = !repeated.isPrimitive()
        && repeated.asGroupType().getFieldCount() == 1
        && !repeated.getName().equals("array")
        && !repeated.getName().endsWith("_tuple");
    if (!wrapped) {
      field(value, 0);
      return;
    }
    text.append('[');
    for (int i = 0; i < value.getFieldRepetitionCount(0); i++) {
      separate(i);
      field(value.getGroup(0, i), 0);
    }
    text.append(']');
  }

  private void map(Group value) {
    text.append("{\"map\":[");
    for (int i = 0; i < value.getFieldRepetitionCount(0); i++) {
      separate(i);
      Group entry = value.getGroup(0, i);
      text.append('[');
      field(entry, 0);
      text.append(',');
      field(entry, 1);
      text.append(']');
    }
    text.append("]}");
  }

  private void primitive(Group group, int field, int index, PrimitiveType type) {
    LogicalTypeAnnotation annotation = type.getLogicalTypeAnnotation();
    switch (type.getPrimitiveTypeName()) {
      case BOOLEAN:
        text.append(group.getBoolean(field, index));
        break;
      case INT32:
        integer(group.getInteger(field, index), annotation, true);
        break;
      case INT64:
        integer(group.getLong(field, index), annotation, false);
        break;
      case FLOAT:
        real(group.getFloat(field, index));
        break;
      case DOUBLE:
        real(group.getDouble(field, index));
        break;
      case INT96:
        tagged("ns", String.valueOf(nanos(group.getInt96(field, index))));
        break;
      default:
        binary(group.getBinary(field, index), annotation);
    }
  }

  private void integer(long value, LogicalTypeAnnotation annotation, boolean narrow) {
    if (annotation instanceof DecimalLogicalTypeAnnotation) {
      decimal(BigInteger.valueOf(value), (DecimalLogicalTypeAnnotation) annotation);
    } else if (annotation instanceof DateLogicalTypeAnnotation) {
      tagged("days", String.valueOf(value));
    } else if (annotation instanceof TimestampLogicalTypeAnnotation) {
      tagged(unit(((TimestampLogicalTypeAnnotation) annotation).getUnit()), String.valueOf(value));
    } else if (annotation instanceof TimeLogicalTypeAnnotation) {
      tagged("time_" + unit(((TimeLogicalTypeAnnotation) annotation).getUnit()), String.valueOf(value));
    } else if (annotation instanceof IntLogicalTypeAnnotation && !((IntLogicalTypeAnnotation) annotation).isSigned()) {
      text.append(narrow ? String.valueOf(value & 0xFFFFFFFFL) : Long.toUnsignedString(value));
    } else {
      text.append(value);
    }
  }

  private void binary(Binary value, LogicalTypeAnnotation annotation) {
    if (annotation instanceof StringLogicalTypeAnnotation || annotation instanceof JsonLogicalTypeAnnotation) {
      string(value.toStringUsingUTF8());
    } else if (annotation instanceof DecimalLogicalTypeAnnotation) {
      decimal(new BigInteger(value.getBytes()), (DecimalLogicalTypeAnnotation) annotation);
    } else {
      tagged("bytes", '"' + Options.hex(value.getBytes()) + '"');
    }
  }

  private void decimal(BigInteger unscaled, DecimalLogicalTypeAnnotation type) {
    tagged("decimal", '"' + new BigDecimal(unscaled, type.getScale()).toPlainString() + '"');
  }

  /** The bits of the number as a double, because no two languages agree on the digits to print. */
  private void real(double value) {
    tagged("double", '"' + HEX.toHexDigits(Double.doubleToLongBits(value)) + '"');
  }

  /** Overflow wraps, as it does in Arrow. */
  private static long nanos(Binary int96) {
    ByteBuffer buffer = ByteBuffer.wrap(int96.getBytes()).order(ByteOrder.LITTLE_ENDIAN);
    long ofDay = buffer.getLong();
    return (Integer.toUnsignedLong(buffer.getInt()) - JULIAN_DAY_OF_EPOCH) * NANOS_PER_DAY + ofDay;
  }

  private static String unit(TimeUnit unit) {
    switch (unit) {
      case MILLIS:
        return "ms";
      case MICROS:
        return "us";
      default:
        return "ns";
    }
  }

  private void tagged(String tag, String value) {
    text.append("{\"").append(tag).append("\":").append(value).append('}');
  }

  private void separate(int index) {
    if (index > 0) {
      text.append(',');
    }
  }

  private void string(String value) {
    text.append('"');
    for (int i = 0; i < value.length(); i++) {
      char c = value.charAt(i);
      int at = "\"\\\b\f\n\r\t".indexOf(c);
      if (at >= 0) {
        text.append('\\').append("\"\\bfnrt".charAt(at));
      } else if (c < 0x20) {
        text.append(String.format("\\u%04x", (int) c));
      } else {
        text.append(c);
      }
    }
    text.append('"');
  }
}
