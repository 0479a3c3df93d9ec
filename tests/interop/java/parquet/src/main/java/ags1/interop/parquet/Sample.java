package ags1.interop.parquet;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/**
 * The rows of a sample file: each a function of the seed and its row number alone, so that Python can compute the same
 * ones ({@code sample_rows} in parquet_peer.py, which has to change with this class).
 */
final class Sample {
  private static final HexFormat HEX = HexFormat.of();
  private static final int DECIMAL_BYTES = 9;
  private static final long MICROS_PER_DAY = 86_400_000_000L;
  private static final int JULIAN_DAY_OF_EPOCH = 2_440_588;
  private static final String[] CITIES = {"Oslo", "Zürich", "København", "São Paulo", "東京", "Nuuk", "Quito", ""};

  private final MessageType schema;
  private final boolean int96;
  private final long seed;
  private long row;

  Sample(long seed, boolean int96) {
    this.seed = seed;
    this.int96 = int96;
    this.schema = MessageTypeParser.parseMessageType(
        "message sample {\n"
            + "  required int64 id;\n"
            + "  optional double price;\n"
            + "  optional binary city (STRING);\n"
            + "  optional binary token (STRING);\n"
            + "  required boolean active;\n"
            + (int96 ? "  optional int96 at;\n" : "  optional int64 at (TIMESTAMP(MICROS,true));\n")
            + "  optional fixed_len_byte_array(" + DECIMAL_BYTES + ") amount (DECIMAL(20,4));\n"
            + "  optional group numbers (LIST) { repeated group list { optional int32 element; } }\n"
            + "  optional group counts (MAP) {\n"
            + "    repeated group key_value { required binary key (STRING); optional int64 value; }\n"
            + "  }\n"
            + "  optional group point { optional int32 a; optional binary b (STRING); }\n"
            + "}");
  }

  MessageType schema() {
    return schema;
  }

  /** SplitMix64 over the seed, the row number and the number of the draw. */
  private long draw(int number) {
    long z = seed * 0x9E3779B97F4A7C15L + row * 0xBF58476D1CE4E5B9L + number * 0x94D049BB133111EBL;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return z ^ (z >>> 31);
  }

  private int draw(int number, int bound) {
    return (int) Long.remainderUnsigned(draw(number), bound);
  }

  Group group(long rowNumber) {
    row = rowNumber;
    Group group = new SimpleGroup(schema);
    group.add("id", rowNumber);
    if (draw(1, 7) != 0) {
      group.add("price", (draw(2) >>> 11) * 0x1p-53 * 1000.0);
    }
    if (draw(3, 11) != 0) {
      group.add("city", CITIES[draw(4, CITIES.length)]);
    }
    if (draw(5, 13) != 0) {
      group.add("token", HEX.toHexDigits(draw(6)) + HEX.toHexDigits(draw(7)));
    }
    group.add("active", draw(8, 2) == 1);
    if (draw(9, 5) != 0) {
      addTime(group, 1_600_000_000_000_000L + Long.remainderUnsigned(draw(10), 100_000_000_000_000L));
    }
    if (draw(11, 9) != 0) {
      long magnitude = Long.remainderUnsigned(draw(12), 1_000_000_000_000L);
      group.add("amount", decimal(draw(13, 2) == 1 ? -magnitude : magnitude));
    }
    addNested(group);
    return group;
  }

  private void addNested(Group group) {
    if (draw(14, 6) != 0) {
      Group numbers = group.addGroup("numbers");
      for (int i = 0, count = draw(15, 5); i < count; i++) {
        Group element = numbers.addGroup("list");
        if (draw(20 + i, 8) != 0) {
          element.add("element", (int) draw(30 + i));
        }
      }
    }
    if (draw(16, 6) != 0) {
      Group counts = group.addGroup("counts");
      for (int i = 0, count = draw(17, 4); i < count; i++) {
        Group entry = counts.addGroup("key_value");
        entry.add("key", "k" + i);
        if (draw(40 + i, 8) != 0) {
          entry.add("value", draw(50 + i));
        }
      }
    }
    if (draw(18, 5) != 0) {
      Group point = group.addGroup("point");
      if (draw(60, 4) != 0) {
        point.add("a", (int) draw(61));
      }
      if (draw(62, 4) != 0) {
        point.add("b", "b" + draw(63, 100));
      }
    }
  }

  private void addTime(Group group, long micros) {
    if (!int96) {
      group.add("at", micros);
      return;
    }
    ByteBuffer buffer = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN);
    buffer.putLong(Math.floorMod(micros, MICROS_PER_DAY) * 1000);
    buffer.putInt((int) Math.floorDiv(micros, MICROS_PER_DAY) + JULIAN_DAY_OF_EPOCH);
    group.add("at", Binary.fromConstantByteArray(buffer.array()));
  }

  private static Binary decimal(long unscaled) {
    byte[] fixed = new byte[DECIMAL_BYTES];
    byte[] minimal = BigInteger.valueOf(unscaled).toByteArray();
    Arrays.fill(fixed, (byte) (unscaled < 0 ? -1 : 0));
    System.arraycopy(minimal, 0, fixed, DECIMAL_BYTES - minimal.length, minimal.length);
    return Binary.fromConstantByteArray(fixed);
  }
}
